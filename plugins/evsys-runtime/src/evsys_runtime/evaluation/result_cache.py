"""Cached scored rollouts: a repeated evaluation costs nothing, and a changed one is made again.

Only whole rollouts with a score are kept: none that crashed, ran out of time, or couldn't be judged. Rollouts from
the cache keep their own usage, which metrics of cost and time need, and is marked, so that nothing is counted as
spent twice. An evaluation interrupted in an earlier attempt at the same run counts as the run's own, since it
hasn't been counted yet.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError, StoreError
from evsys.types import HarborTask, NoScore, Policy, Rollout, RolloutLimits, Score, Usage
from evsys_record.encoding import encode_record
from evsys_record.hashing import digest
from evsys_record.jsonl import JsonlWriter, read_jsonl
from evsys_record.rollouts import rollout_from_tree, rollout_tree
from evsys_record.secrets import Redactor
from evsys_runtime.data.ingredients import differences
from evsys_runtime.data.result_store import ResultStore, StoredEvaluation, StoredRollout
from evsys_runtime.evaluation.agents import HarnessAgent
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.cache_marks import mark_cached
from evsys_runtime.evaluation.result_key import Trained, ingredients, rollout_keys, uncacheable_reason
from evsys_runtime.evaluation.results import rollout_usage
from evsys_runtime.evaluation.streams import closing

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Agent, InferenceClient, SamplingClient
    from evsys.types import AgentContext

__all__ = ["LOOKUPS", "ResultCache"]

LOOKUPS = "cache.jsonl"
"""The file of a run's record that says what was looked for in the cache, what was there, and why the rest wasn't."""

_BATCH = 256
_MOST_TOLD = 20


@attrs.frozen(kw_only=True)
class _Lookup:
    """The look-up of an evaluation before it begins."""

    scoring: str
    ingredients: Mapping[str, Any]
    keys: Mapping[tuple[str, int], str]
    stored: Mapping[str, Any]
    known: Mapping[tuple[str, int], Rollout]
    own: bool

    @property
    def complete(self) -> bool:
        return len(self.known) == len(self.keys)


class ResultCache:
    """The cache of a project, as one run uses it. Trouble with it never stops an evaluation: it is reported once.

    Args:
        store: the project's results.
        registry: of plugins.
        run_dir: the run's folder; its `cache.jsonl` records the look-ups.
        trained: the evaluated weights; None if only API models are evaluated.
        tell: gets, once, the reason why the cache isn't used.
        redactor: knows the secrets; rollouts with one aren't cached.

    Attributes:
        taken_over: the usage of rollouts from earlier attempts at the same run, as they are handed out; it is left
            out of the spending, since it was paid for.
    """

    def __init__(
        self,
        store: ResultStore,
        *,
        registry: Registry,
        run_dir: Path,
        trained: Trained | None = None,
        tell: Callable[[str], None] = lambda _message: None,
        redactor: Redactor | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._run_dir = run_dir
        self._trained = trained
        self._tell = tell
        self._redactor = redactor or Redactor.from_environment()
        self._broken = False
        self.taken_over: list[Usage] = []

    async def rollouts(
        self,
        benchmark: BoundBenchmark,
        policy: Policy,
        limits: RolloutLimits,
        *,
        snapshot: SamplingClient | None,
        step: int,
        model: str | None,
    ) -> AsyncGenerator[Rollout]:
        """Yield the rollouts of `benchmark.engine.run`, as far as possible from the cache; the rest is made and
        cached.

        In fixed waves a sampler's answers depend on the concurrent ones, so there it is all or nothing.

        Args:
            benchmark: the entry.
            policy: the acting policy.
            limits: bounds of the engine.
            snapshot: the weights; None for an API model.
            step: optimiser steps behind them.
            model: the API model's name.
        """
        lookup = self._look_up(
            benchmark,
            policy,
            limits,
            snapshot,
            told={"benchmark": benchmark.name, "step": step, "model": model},
        )
        if lookup is None:
            async with closing(benchmark.engine.run(benchmark.tasks, policy, limits)) as stream:
                async for rollout in stream:
                    yield rollout
            return
        if lookup.complete:
            for place in lookup.keys:
                yield self._mark_rollout(lookup, place, policy)
            return
        known = lookup.known if _may_mix(benchmark, limits) else {}
        made: list[Rollout] = []
        acting = _replaying(policy, known) if known else policy
        try:
            async with closing(benchmark.engine.run(benchmark.tasks, acting, limits)) as stream:
                async for rollout in stream:
                    place = (rollout.task_id, rollout.sample_index)
                    if place in known:
                        yield self._mark_rollout(lookup, place, policy)
                        continue
                    made.append(rollout)
                    if len(made) >= _BATCH:
                        self._keep(benchmark, lookup, made)
                    yield rollout
        finally:
            self._keep(benchmark, lookup, made)

    @cached_property
    def _begun(self) -> frozenset[tuple[Any, ...]]:
        """The scorings of which earlier attempts at this run found nothing here, so that what is there now they have made."""
        lines = read_jsonl(self._run_dir / LOOKUPS, missing_ok=True)
        return frozenset(
            (line["scoring"], line["benchmark"], line["step"], line["model"])
            for line in lines
            if line.get("found") == 0
        )

    def _look_up(
        self,
        benchmark: BoundBenchmark,
        policy: Policy,
        limits: RolloutLimits,
        snapshot: SamplingClient | None,
        told: Mapping[str, Any],
    ) -> _Lookup | None:
        """The cached part of an evaluation; None if it can't be used."""
        if self._broken:
            return None
        try:
            reason = uncacheable_reason(benchmark, self._registry, self._trained)
            if reason is not None:
                self._note({**told, "reason": reason})
                return None
            decided = ingredients(
                benchmark,
                policy,
                limits,
                registry=self._registry,
                trained=self._trained,
                snapshot=snapshot,
            )
            lookup = self._find_rollouts(benchmark, decided, told)
            mixes = lookup.complete or _may_mix(benchmark, limits)
            self._note({**told, **self._account(benchmark, lookup, used=len(lookup.known) if mixes else 0)})
        except PLUGIN_FAILURES as exc:
            self._give_up(str(exc) if isinstance(exc, EvsysError) else f"{type(exc).__name__}: {exc}")
            return None
        return lookup

    def _find_rollouts(
        self, benchmark: BoundBenchmark, decided: Mapping[str, Any], told: Mapping[str, Any]
    ) -> _Lookup:
        scoring = digest(decided)
        keys = rollout_keys(benchmark.tasks, benchmark.num_samples)
        stored = self._store.rollouts(scoring)
        known = {place: rollout_from_tree(stored[key]) for place, key in keys.items() if key in stored}
        own = (scoring, *told.values()) in self._begun and self._store.maker(scoring) == str(self._run_dir)
        decided = self._redactor.tree(decided)  # a system prompt may hold a secret
        return _Lookup(scoring=scoring, ingredients=decided, keys=keys, stored=stored, known=known, own=own)

    def _account(self, benchmark: BoundBenchmark, lookup: _Lookup, *, used: int) -> dict[str, Any]:
        """A lookup as `cache.jsonl` has it; where something is missing, what differs from what is there."""
        told: dict[str, Any] = {
            "scoring": lookup.scoring,
            "ingredients": lookup.ingredients,
            "wanted": len(lookup.keys),
            "found": len(lookup.known),
            "used": used,
        }
        if lookup.complete:
            return told
        if used < len(lookup.known):
            told["reason"] = "some rollouts are missing, and a deterministic scoring is made as a whole"
        if lookup.stored:
            missing = [place for place in lookup.keys if place not in lookup.known]
            told["missing"] = [
                {"task_id": task, "sample_index": sample, "why": _why_missing(task, sample, lookup)}
                for task, sample in missing[:_MOST_TOLD]
            ]
            return told
        told["nearest"] = _nearest(lookup.ingredients, self._store.known(benchmark.name))
        return told

    def _keep(self, benchmark: BoundBenchmark, lookup: _Lookup, made: list[Rollout]) -> None:
        """Keep what is worth keeping, and forget that it was made."""
        whole = [rollout for rollout in made if _is_whole(rollout)]
        made.clear()
        places = [(rollout, lookup.keys.get((rollout.task_id, rollout.sample_index))) for rollout in whole]
        kept = [
            StoredRollout(key, encode_record(rollout_tree(rollout)))
            for rollout, key in places
            if key is not None and self._redactor.tree(rollout.metadata) == rollout.metadata
        ]
        if self._broken or not kept:
            return
        try:
            self._store.keep(
                lookup.scoring,
                [one for one in kept if self._redactor.values(one.text) == one.text],
                benchmark=benchmark.name,
                ingredients=lookup.ingredients,
                run=str(self._run_dir),
            )
        except StoreError as exc:
            self._give_up(str(exc))

    def _mark_rollout(self, lookup: _Lookup, place: tuple[str, int], policy: Policy) -> Rollout:
        if lookup.own:
            self.taken_over.append(rollout_usage(lookup.known[place]))
            return attrs.evolve(lookup.known[place], policy_version=policy.version)
        return mark_cached(lookup.known[place], lookup.scoring, policy_version=policy.version)

    def _note(self, told: Mapping[str, Any]) -> None:
        with JsonlWriter(self._run_dir / LOOKUPS, scrub=self._redactor.values) as writer:
            writer.write({"time": time.time(), **told})

    def _give_up(self, reason: str) -> None:
        self._broken = True
        self._tell(f"results are neither taken from the cache nor kept there: {reason}")


def _may_mix(benchmark: BoundBenchmark, limits: RolloutLimits) -> bool:
    """True where rollouts of the cache and new ones may be side by side."""
    alone = benchmark.inference is not None or not limits.wave
    return alone and benchmark.environment is None and not isinstance(benchmark.agent, HarnessAgent)


def _is_whole(rollout: Rollout) -> bool:
    return isinstance(rollout.score, Score) and rollout.error is None and not rollout.timed_out


def _replaying(policy: Policy, known: Mapping[tuple[str, int], Rollout]) -> Policy:
    """The policy, which for known rollouts calls neither agent nor verifier."""

    async def verify(task: HarborTask, rollout: Rollout) -> Score | NoScore:
        found = known.get((task.task_id, rollout.sample_index))
        return found.score if found is not None else await policy.verify(task, rollout)

    return attrs.evolve(policy, agent=_Replaying(policy.agent, known), verify=verify)


class _Replaying:
    """An agent that repeats what is known."""

    def __init__(self, agent: Agent, known: Mapping[tuple[str, int], Rollout]) -> None:
        self._agent = agent
        self._known = known

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout | str:
        known = self._known.get((task.task_id, ctx.sample_index))
        return known if known is not None else await self._agent.run(task, model, tools, ctx)


def _why_missing(task_id: str, sample: int, lookup: _Lookup) -> str:
    """Why a rollout isn't there, though others of its scoring are."""
    wanted_index, _, rest = lookup.keys[task_id, sample].partition("/")
    content = rest.partition("/")[2]
    parts = [key.split("/", 1) for key in lookup.stored]
    if any(index == wanted_index and other.partition("/")[2] == content for index, other in parts):
        return "this sample wasn't drawn, or had no score"
    if any(other.partition("/")[2] == content for _, other in parts):
        return "the task was at another position of the benchmark, so its samples had other seeds"
    name = content.rpartition("/")[0]
    if any(other.partition("/")[2].rpartition("/")[0] == name for _, other in parts):
        return "the task changed"
    return "nothing is kept of this task: it is new, or had no score"


def _nearest(wanted: Mapping[str, Any], known: Sequence[StoredEvaluation]) -> dict[str, Any] | None:
    """The scoring with the fewest differences, the newest among equals, and what they are."""
    judged = [(scoring, differences(wanted, scoring.ingredients)) for scoring in known]
    nearest = min(judged, key=lambda pair: len(pair[1]), default=None)
    if nearest is None:
        return None
    scoring, found = nearest
    return {
        "scoring": scoring.id,
        "run": scoring.run,
        "created": scoring.created,
        "differences": [attrs.asdict(difference) for difference in found],
    }
