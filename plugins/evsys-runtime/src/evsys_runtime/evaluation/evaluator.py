"""Scores benchmark entries on snapshots of the model, in the loop and after it, by one and the same code.

A scoring never raises into training, unless the record can't be written: what fails becomes an `EvaluationResult` that
says so. In this version `submit`
waits for the scores; callers rely on `submit` and `drain` alone, so scoring beside training needs no other interface.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PluginContractError, boundary
from evsys.types import (
    EvaluationResult,
    Failure,
    MetricValue,
    NoScore,
    Policy,
    Rollout,
    RolloutLimits,
    Score,
    Usage,
)
from evsys_runtime.evaluation.benchmarks import ApiModel, BoundBenchmark
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.metrics import Scores, breakdown, rewards_by_task, score
from evsys_runtime.evaluation.verify import make_verify
from evsys_runtime.record.slugs import slug
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import InferenceClient, Log, Recorder, Renderer, SamplingClient
    from evsys.types import RunContext, Verify

__all__ = ["MAX_NO_SCORE", "Evaluator"]

MAX_NO_SCORE = 0.05
"""Above this share of rollouts without a score an evaluation says nothing."""

MOST_TOLD = 100
"""How often listeners hear of the progress of one scoring."""

type MakeModel = Callable[[SamplingClient, BoundBenchmark], InferenceClient]


class Evaluator:
    """A core `Evaluate` over bound benchmark entries.

    Args:
        benchmarks: the entries, in order.
        renderer: the model's renderer; None where `make_model` needs none.
        seeds: gives the derived seed of a purpose; arms that share it are paired.
        registry: where the tasks' verifiers are looked up.
        record: gets each rollout and each scoring's metrics.
        log: gets an event for each scoring.
        deterministic: sample in fixed waves, so that each scoring has the same bits.
        score_untrained: score every entry at step 0 too.
        known: scorings made before: of shared starting weights, or of the attempt that this one resumes.
        expected_seconds: how long a scoring of an entry took elsewhere.
        make_model: makes the model client of a scoring; by default the snapshot behind the renderer.
        timeout_seconds: longest time of one rollout.
        directory: the run's folder, where engines may keep files of rollouts; None keeps none.
    """

    def __init__(
        self,
        benchmarks: Sequence[BoundBenchmark],
        renderer: Renderer | None,
        *,
        seeds: Callable[..., int],
        registry: Registry,
        record: Recorder | None = None,
        log: Log | None = None,
        deterministic: bool = False,
        score_untrained: bool = False,
        known: Iterable[EvaluationResult] = (),
        expected_seconds: Mapping[str, float] | None = None,
        make_model: MakeModel | None = None,
        timeout_seconds: float = 600.0,
        directory: Path | None = None,
    ) -> None:
        self.benchmarks = tuple(benchmarks)
        self._renderer = renderer
        self._seeds = seeds
        self._verify: Verify = make_verify(registry)
        self._record = record
        self._log = log
        self._deterministic = deterministic
        self._score_untrained = score_untrained
        self._make_model = make_model
        self._timeout_seconds = timeout_seconds
        self._directory = directory
        self._results: list[EvaluationResult] = list(known)
        self._seconds = dict(expected_seconds or {})
        self._ctx: RunContext | None = None

    def bind(self, ctx: RunContext) -> None:
        """Tell the hooks of `ctx` about each scoring from here on."""
        self._ctx = ctx

    # --- the core protocol --------------------------------------------------------------------------------------

    def due(self, step: int) -> bool:
        """True when an entry wants scoring after `step` optimiser steps, and wasn't scored there."""
        return bool(self._due(step))

    async def submit(self, step: int, snapshot: SamplingClient) -> None:
        """Score what is due at `step`, and close the snapshot."""
        await self._score_each(self._due(step), step, snapshot)

    async def drain(self) -> Sequence[EvaluationResult]:
        """All results so far, by step, then in the order of the entries."""
        return self.results

    def estimate(self, start: int, end: int) -> float | None:
        """Seconds that the scorings after step `start` up to `end` take, the last weights' included.

        Judged by the last scoring of each entry; None where one was never scored.
        """
        counts = {b.name: _scorings(b, start, end) for b in self.benchmarks}
        if any(n and name not in self._seconds for name, n in counts.items()):
            return None
        return sum((n * self._seconds[name] for name, n in counts.items() if n), 0.0)

    @property
    def results(self) -> Sequence[EvaluationResult]:
        """What is scored so far, in the order of `drain`."""
        order = {benchmark.name: place for place, benchmark in enumerate(self.benchmarks)}
        return sorted(
            self._results, key=lambda result: (result.step, order.get(result.benchmark, len(order)))
        )

    # --- after training -----------------------------------------------------------------------------------------

    async def final(
        self, step: int, snapshot: SamplingClient | None, *, reason: str = "there was no snapshot to score"
    ) -> Sequence[EvaluationResult]:
        """Score every entry on the trained weights, unless it was scored at this very step; all results, by step.

        Args:
            step: optimiser steps behind the weights.
            snapshot: those weights; closed afterwards. None records each of these scorings as missing.
            reason: why there is no snapshot.
        """
        wanted = [benchmark for benchmark in self.benchmarks if not self._scored(benchmark, step)]
        if snapshot is not None:
            await self._score_each(wanted, step, snapshot)
        else:
            for benchmark in wanted:
                failure = Failure(boundary="evaluation", message=reason, error_type="Missing")
                await self._finish(benchmark, _result(benchmark, step, status="missing", failure=failure))
        return await self.drain()

    async def score(self, benchmark: BoundBenchmark, snapshot: SamplingClient, step: int) -> EvaluationResult:
        """Score one entry on a snapshot, which stays open. A failure is a result; only a broken record raises."""
        return await self._score(benchmark, snapshot, step)

    async def score_model(self, benchmark: BoundBenchmark, model: ApiModel) -> EvaluationResult:
        """Score an entry on an API model, as `score` does on a snapshot; the result has its name."""
        asked = attrs.evolve(benchmark, inference=model.client)
        return await self._score(asked, None, 0, model=model.name)

    # --- inside -------------------------------------------------------------------------------------------------

    async def _score(
        self,
        benchmark: BoundBenchmark,
        snapshot: SamplingClient | None,
        step: int,
        *,
        model: str | None = None,
    ) -> EvaluationResult:
        started = time.perf_counter()
        self._event("evaluation.started", benchmark, step=step, model=model, tasks=len(benchmark.tasks))
        rollouts: list[Rollout] = []
        try:
            await self._run(benchmark, snapshot, step, rollouts, model)
            result = self._scored_result(benchmark, step, rollouts)
        except Exception as exc:
            result = _result(benchmark, step, status="failed", failure=failure_of(exc), **_counts(rollouts))
        seconds = time.perf_counter() - started
        # Rollouts run side by side: their own seconds add up to more than passed here.
        usage = attrs.evolve(result.usage, seconds=seconds)
        result = attrs.evolve(result, model=model, seconds=seconds, usage=usage)
        if model is None:
            self._seconds[benchmark.name] = seconds
        return await self._finish(benchmark, result, rollouts)

    def _due(self, step: int) -> list[BoundBenchmark]:
        if step == 0:
            wanted = list(self.benchmarks) if self._score_untrained else []
        else:
            wanted = [b for b in self.benchmarks if b.run_every is not None and step % b.run_every == 0]
        return [benchmark for benchmark in wanted if not self._scored(benchmark, step)]

    def _scored(self, benchmark: BoundBenchmark, step: int) -> bool:
        return any(
            r.benchmark == benchmark.name and r.step == step and r.model is None for r in self._results
        )

    async def _score_each(
        self, benchmarks: Sequence[BoundBenchmark], step: int, snapshot: SamplingClient
    ) -> None:
        try:
            for benchmark in benchmarks:
                await self.score(benchmark, snapshot, step)
        finally:
            await snapshot.close()

    async def _run(
        self,
        benchmark: BoundBenchmark,
        snapshot: SamplingClient | None,
        step: int,
        rollouts: list[Rollout],
        model: str | None,
    ) -> None:
        """Fill `rollouts`, in the order in which they finish; each goes on record at once."""
        policy = Policy(
            model=self._model(benchmark, snapshot),
            agent=benchmark.agent,
            verify=self._verify,
            sampling=attrs.evolve(benchmark.sampling, seed=self._seeds(f"evaluation/{benchmark.name}", 0)),
            num_samples=benchmark.num_samples,
            system_prompt=benchmark.system_prompt,
            version=snapshot.version if snapshot is not None else None,
            environment=benchmark.environment,
        )
        limits = RolloutLimits(
            n_concurrent=benchmark.n_concurrent,
            timeout_seconds=self._timeout_seconds,
            wave=self._deterministic,
            directory=self._files(benchmark, model or step),
        )
        progress = _Progress(benchmark)
        facts = {"benchmark": benchmark.name, **({} if model is None else {"model": model})}
        await self._tell(progress, benchmark, step)
        with boundary("rollout", type(benchmark.engine).__name__):
            async with _closing(benchmark.engine.run(benchmark.tasks, policy, limits)) as stream:
                async for rollout in stream:
                    rollouts.append(rollout)
                    if self._record is not None:
                        self._record.rollout(step, rollout, phase=benchmark.phase, **facts)
                    if progress.counts(rollout):
                        await self._tell(progress, benchmark, step)
        _require_each_once(benchmark, rollouts)

    def _files(self, benchmark: BoundBenchmark, scored: int | str) -> Path | None:
        """Where the engine may keep files of one scoring, of a step's weights or of an API model."""
        if self._directory is None:
            return None
        return self._directory / benchmark.phase / "files" / f"{slug(benchmark.name)}-{slug(str(scored))}"

    async def _tell(self, progress: _Progress, benchmark: BoundBenchmark, step: int) -> None:
        if self._ctx is not None:
            await self._ctx.hooks.emit(
                "evsys_evaluation_advanced",
                ctx=self._ctx,
                benchmark=benchmark.name,
                step=step,
                done=progress.done,
                total=progress.total,
            )

    def _model(self, benchmark: BoundBenchmark, snapshot: SamplingClient | None) -> InferenceClient:
        if benchmark.inference is not None:
            return benchmark.inference
        if snapshot is None:
            raise PluginContractError("there is neither a snapshot nor a client to score")
        if self._make_model is not None:
            return self._make_model(snapshot, benchmark)
        if self._renderer is None:
            raise PluginContractError("an evaluation without a renderer needs a make_model")
        return PolicyClient(snapshot, self._renderer)

    def _scored_result(
        self, benchmark: BoundBenchmark, step: int, rollouts: Sequence[Rollout]
    ) -> EvaluationResult:
        by_task = _by_task(benchmark, rollouts)
        scores = Scores(
            rewards=rewards_by_task(by_task),
            rollouts=by_task,
            clusters=benchmark.clusters,
            reward_range=benchmark.reward_range,
        )
        seed = self._seeds(f"interval/{benchmark.name}", 0)
        metrics, failures = score(benchmark.metrics, scores, seed=seed)
        invalid = _invalid(rollouts)
        failure = failure_of(failures[0]) if failures else invalid
        return _result(
            benchmark,
            step,
            status="failed" if failures else "invalid" if invalid else "completed",
            failure=failure,
            metrics=metrics,
            task_rewards=scores.rewards,
            clusters=benchmark.clusters,
            breakdown=breakdown(benchmark.metrics, scores, benchmark.labels, seed=seed),
            warnings=tuple(_warnings(benchmark, metrics)),
            **_counts(rollouts),
        )

    async def _finish(
        self, benchmark: BoundBenchmark, result: EvaluationResult, rollouts: Sequence[Rollout] = ()
    ) -> EvaluationResult:
        """Put a result on record and tell who listens."""
        self._results.append(result)
        if self._record is not None:
            self._record.metrics(result.step, _values(result, rollouts), phase=benchmark.phase)
        self._event(
            f"evaluation.{'finished' if result.status == 'completed' else result.status}",
            benchmark,
            step=result.step,
            model=result.model,
            scored=result.scored,
            no_score=result.no_score,
            metrics={name: value.value for name, value in result.metrics.items()},
            reason=result.failure.message if result.failure else None,
        )
        if self._ctx is not None:
            await self._ctx.hooks.emit(
                "evsys_rollouts_finished",
                ctx=self._ctx,
                step=result.step,
                phase=benchmark.phase,
                rollouts=tuple(rollouts),
            )
            await self._ctx.hooks.emit("evsys_evaluation_finished", ctx=self._ctx, evaluation=result)
        return result

    def _event(self, event: str, benchmark: BoundBenchmark, **facts: Any) -> None:
        if self._log is not None:
            level = self._log.info if event.endswith((".started", ".finished")) else self._log.warning
            level(event, benchmark=benchmark.name, split=benchmark.split, **facts)


class _Progress:
    """How many tasks of a scoring have all their samples."""

    def __init__(self, benchmark: BoundBenchmark) -> None:
        self._missing = {task.task_id: benchmark.num_samples for task in benchmark.tasks}
        self.done, self.total = 0, len(self._missing)
        self._stride = max(1, self.total // MOST_TOLD)

    def counts(self, rollout: Rollout) -> bool:
        """Count a rollout; True when it is time to tell of it."""
        missing = self._missing[rollout.task_id] = self._missing.get(rollout.task_id, 0) - 1
        if missing:
            return False
        self.done += 1
        return self.done % self._stride == 0 or self.done == self.total


def _scorings(benchmark: BoundBenchmark, start: int, end: int) -> int:
    """How often an entry is scored after step `start`: where it is due, and at the end."""
    every = benchmark.run_every
    return (end // every - start // every) + (end % every > 0) if every else 1


@asynccontextmanager
async def _closing(stream: AsyncIterator[Rollout]) -> AsyncGenerator[AsyncIterator[Rollout]]:
    """End an engine's generator with the block, so that a failure here leaves no rollout running."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _result(benchmark: BoundBenchmark, step: int, **fields: Any) -> EvaluationResult:
    return EvaluationResult(
        benchmark=benchmark.name,
        split=benchmark.split,
        step=step,
        tasks=len(benchmark.tasks),
        num_samples=benchmark.num_samples,
        benchmark_hash=benchmark.benchmark_hash,
        verifier_hash=benchmark.verifier_hash,
        **fields,
    )


def _by_task(benchmark: BoundBenchmark, rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """Rollouts by task, in the benchmark's order whatever the order in which they finished."""
    by_task: dict[str, list[Rollout]] = {task.task_id: [] for task in benchmark.tasks}
    for rollout in sorted(rollouts, key=lambda rollout: rollout.sample_index):
        by_task[rollout.task_id].append(rollout)
    return by_task


def _require_each_once(benchmark: BoundBenchmark, rollouts: Sequence[Rollout]) -> None:
    """Hold the engine to its contract: every task's every sample exactly once."""
    seen = Counter((rollout.task_id, rollout.sample_index) for rollout in rollouts)
    wanted = {(task.task_id, sample) for task in benchmark.tasks for sample in range(benchmark.num_samples)}
    odd = sorted(key for key in wanted | seen.keys() if seen[key] != (key in wanted))
    if odd:
        task, sample = odd[0]
        raise PluginContractError(
            f"the engine gave {len(rollouts)} rollouts instead of {len(wanted)}: task {task!r} sample {sample} came "
            f"{seen[task, sample]} times"
        )


def _counts(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    without = sum(isinstance(rollout.score, NoScore) for rollout in rollouts)
    usage = Usage()
    for rollout in rollouts:
        usage = usage + rollout.usage
    return {"scored": len(rollouts) - without, "no_score": without, "usage": usage}


def _invalid(rollouts: Sequence[Rollout]) -> Failure | None:
    """Why an evaluation says nothing: too many of its rollouts have no score."""
    absent = [rollout.score for rollout in rollouts if isinstance(rollout.score, NoScore)]
    if len(absent) <= MAX_NO_SCORE * len(rollouts):
        return None
    reasons = Counter((score.boundary or "unknown", score.reason) for score in absent)
    told = "; ".join(f"{count} x {where}: {reason}" for (where, reason), count in reasons.most_common(3))
    return Failure(
        boundary=absent[0].boundary or "evaluation",
        message=f"{len(absent)} of {len(rollouts)} rollouts have no score, more than {MAX_NO_SCORE:.0%} ({told})",
        error_type="NoScore",
    )


def _warnings(benchmark: BoundBenchmark, metrics: Mapping[str, MetricValue]) -> Iterable[str]:
    for metric in benchmark.metrics:
        if not metric.declared:
            yield f"metric {metric.name!r} declares no direction; more is taken to be better"
        excluded = metrics[metric.name].excluded
        if excluded:
            lacking = "of what it measures" if metric.over_rollouts else "of scored samples"
            yield f"{metric.name} leaves out {excluded} of {len(benchmark.tasks)} tasks for want {lacking}"


def _values(result: EvaluationResult, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """A scoring as a line of metrics, with the mean of each component; a metric that isn't available is left out."""
    scored = result.benchmark if result.model is None else f"{result.benchmark}@{result.model}"
    values = {f"{scored}/{name}": value.value for name, value in result.metrics.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    return {
        **numbers,
        **{f"{scored}/components/{name}": mean for name, mean in _components(rollouts).items()},
        f"{scored}/scored": float(result.scored),
        f"{scored}/no_score": float(result.no_score),
        f"{scored}/seconds": result.seconds,
    }


def _components(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The mean of each named part of the scores, over the rollouts whose score has it."""
    parts: dict[str, list[float]] = {}
    for rollout in sorted(rollouts, key=lambda rollout: (rollout.task_id, rollout.sample_index)):
        if isinstance(rollout.score, Score):
            for name, value in rollout.score.components.items():
                parts.setdefault(name, []).append(float(value))
    return {name: math.fsum(values) / len(values) for name, values in sorted(parts.items())}
