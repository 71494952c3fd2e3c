"""Training rollouts: the model as it is now, through the same engines, agents and verifiers as its evaluations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import boundary
from evsys.types import NoScore, Policy, Usage
from evsys_runtime.accounting.metering import without_meter
from evsys_runtime.config.engines import auto_engine
from evsys_runtime.evaluation.agents import HarnessAgent
from evsys_runtime.evaluation.background_writer import BackgroundWriter
from evsys_runtime.evaluation.results import rollout_usage
from evsys_runtime.evaluation.streams import closing
from evsys_runtime.evaluation.verify import make_verify
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Agent, Pause, Recorder, Renderer, RolloutEngine, SamplingClient
    from evsys.types import HarborTask, Rollout, RolloutLimits, SamplingParams, Verify

__all__ = ["TrainingRollouts"]


class TrainingRollouts:
    """A core `Rollouts`.

    Rollouts cut short, ran out of time or failed are yielded like all others, and continue record, in a thread: to
    write thousands of tokens takes longer than to take them.

    Args:
        renderer: the model's renderer.
        agent: who acts.
        registry: where engines and the tasks' verifiers are looked up.
        seeds: gives the derived seed of a purpose.
        record: gets each rollout.
        environment: where the agent acts: a name, or an object with `kind` and `params`; None is nowhere.
        system_prompt: goes before each task.
        endpoints: where agents reach the model over HTTP, see `Policy`.
        charge: gets what each rollout and its verdict used.
        max_retries: how often a rollout that failed is sampled again, with another seed.
    """

    def __init__(
        self,
        *,
        renderer: Renderer,
        agent: Agent,
        registry: Registry,
        seeds: Callable[..., int],
        record: Recorder | None = None,
        environment: Any = None,
        system_prompt: str | None = None,
        endpoints: Any = None,
        charge: Callable[[Usage], None] | None = None,
        max_retries: int = 0,
        pause: Pause | None = None,
    ) -> None:
        self._renderer = renderer
        self._agent = agent
        self._registry = registry
        self._seeds = seeds
        self._writer = None if record is None else BackgroundWriter(record)
        self._environment = environment
        self._system_prompt = system_prompt
        self._endpoints = endpoints
        self._charge = charge
        self._max_retries = max_retries
        self._pause = pause
        self._under_way: list[float] = []
        self._verify: Verify = make_verify(registry)
        self._engines: dict[str, RolloutEngine] = {}

    async def collect(
        self,
        tasks: Sequence[HarborTask],
        snapshot: SamplingClient,
        num_samples: int,
        *,
        sampling: SamplingParams,
        limits: RolloutLimits,
        step: int,
    ) -> AsyncGenerator[Rollout]:
        """Yield `num_samples` scored rollouts of each task, as the engine gives them. The snapshot stays open.

        Those that failed are sampled again and come last, unless most of the work failed. Such a rollout counts what all its attempts
        took, and its metadata have `attempts` and the reasons of the earlier ones, `failed_before`.

        Args:
            tasks: what is to be done.
            snapshot: who answers. One whose weights change meanwhile has its `version` in each turn.
            num_samples: rollouts of each task.
            sampling: how. A rollout's seed comes from the run's, `step`, `sampling.seed` if given, and its place among
                `tasks`; so calls for parts of a step need different `sampling.seed`s.
            limits: bounds of the engine.
            step: optimiser steps done before; the rollouts continue record under the step that they are for, `step + 1`.

        Raises:
            RolloutError: the engine failed. A rollout that fails is yielded.
            BudgetExceeded: nothing is left for further ones.
            StoreError: an earlier rollout couldn't be put on record.
        """
        part = "" if sampling.seed is None else f"/{sampling.seed}"
        policy = Policy(
            model=PolicyClient(without_meter(snapshot), self._renderer),
            agent=self._agent,
            verify=self._verify,
            sampling=attrs.evolve(sampling, seed=self._seeds(f"rollouts{part}", step)),
            num_samples=num_samples,
            system_prompt=self._system_prompt,
            version=snapshot.version,
            environment=self._environment,
            endpoints=self._endpoints,
            training=True,
        )
        engine = self._engine(tasks)
        places = {task.task_id: place for place, task in reversed([*enumerate(tasks)])}
        wanted = tasks
        before: list[Rollout] = []
        for attempt in range(1 + self._max_retries):
            failed: list[Rollout] = []
            async with closing(self._run(engine, wanted, policy, limits)) as stream:
                async for found in stream:
                    rollout = found if attempt == 0 else _mark_retry(found, before)
                    if attempt < self._max_retries and _has_failed(rollout):
                        failed.append(rollout)
                    else:
                        yield await self._recorded(step, rollout)
            if attempt == 0 and 2 * len(failed) > len(tasks) * num_samples:  # not the luck of single rollouts
                for rollout in failed:
                    yield await self._recorded(step, rollout)
                return
            if not failed:
                return
            before = sorted(failed, key=lambda rollout: (places[rollout.task_id], rollout.sample_index))
            wanted = [tasks[places[rollout.task_id]] for rollout in before]
            seed = self._seeds(f"rollouts{part}/again{attempt + 1}", step)
            again = attrs.evolve(policy.sampling, seed=seed)
            policy = attrs.evolve(policy, num_samples=1, sampling=again)

    async def _recorded(self, step: int, rollout: Rollout) -> Rollout:
        if self._writer is not None:
            await self._writer.rollout(step + 1, rollout)
        return rollout

    async def _run(
        self, engine: RolloutEngine, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncGenerator[Rollout]:
        """The rollouts that an engine gives, each charged as it comes."""
        self._under_way.append(limits.timeout_seconds)
        try:
            with boundary("rollout", type(engine).__name__):
                async with closing(engine.run(tasks, policy, limits)) as stream:
                    async for rollout in stream:
                        if self._charge is not None:
                            self._charge(rollout_usage(rollout))
                        yield rollout
                        if self._pause is not None and self._pause.requested(at_once=True):
                            await self._pause.hold()
        finally:
            self._under_way.remove(limits.timeout_seconds)

    @property
    def patience(self) -> float:
        """Seconds that a rollout which is under way may take; 0 where none is."""
        return max(self._under_way, default=0.0)

    async def close(self) -> None:
        """Wait until all rollouts are on record. Safe to call twice.

        Raises:
            StoreError: one couldn't be.
        """
        if self._writer is not None:
            await self._writer.close()

    def _engine(self, tasks: Sequence[HarborTask]) -> RolloutEngine:
        harness = isinstance(self._agent, HarnessAgent)
        kind = auto_engine(self._environment, tasks, harness=harness)
        if kind not in self._engines:
            params: Mapping[str, Any] = {}
            self._engines[kind] = self._registry.build("rollout_engine", kind, params)
        return self._engines[kind]


def _has_failed(rollout: Rollout) -> bool:
    """True where another attempt may have a score. One that hung is likely to hang again, and costs as much."""
    return isinstance(rollout.score, NoScore) and not rollout.timed_out and not rollout.truncated


def _mark_retry(rollout: Rollout, before: list[Rollout]) -> Rollout:
    """An attempt in place of an earlier one of its task, which is taken from those that wait."""
    place = next(place for place, one in enumerate(before) if one.task_id == rollout.task_id)
    earlier = before.pop(place)
    judging = [one.score.usage for one in (earlier, rollout) if one.score.usage is not None]
    reason = earlier.error or getattr(earlier.score, "reason", "")
    tried = earlier.metadata.get("attempts", 1) + rollout.metadata.get("attempts", 1)
    return attrs.evolve(
        rollout,
        sample_index=earlier.sample_index,
        usage=earlier.usage + rollout.usage,
        score=attrs.evolve(rollout.score, usage=sum(judging, Usage()) if judging else None),
        metadata={
            **rollout.metadata,
            "attempts": tried,
            "failed_before": [*earlier.metadata.get("failed_before", ()), reason],
        },
    )
