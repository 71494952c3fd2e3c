"""Scores benchmark entries on snapshots of the model, in the loop and after it, by one and the same code.

A scoring never raises into training, unless the record can't be written: what fails becomes an `EvaluationResult` that
says so. In this version `submit`
waits for the scores; callers rely on `submit` and `drain` alone, so scoring beside training needs no other interface.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
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
    Usage,
)
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.metrics import Scores, breakdown, rewards_by_task, score
from evsys_runtime.evaluation.verify import make_verify
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import InferenceClient, Log, Recorder, Renderer, SamplingClient
    from evsys.types import RunContext, Verify

__all__ = ["MAX_NO_SCORE", "Evaluator"]

MAX_NO_SCORE = 0.05
"""Above this share of rollouts without a score an evaluation says nothing."""

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
        make_model: makes the model client of a scoring; by default the snapshot behind the renderer.
        timeout_seconds: longest time of one rollout.
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
        make_model: MakeModel | None = None,
        timeout_seconds: float = 600.0,
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
        self._results: list[EvaluationResult] = list(known)
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
        started = time.perf_counter()
        self._event("evaluation.started", benchmark, step=step, tasks=len(benchmark.tasks))
        rollouts: list[Rollout] = []
        try:
            await self._run(benchmark, snapshot, step, rollouts)
            result = self._scored_result(benchmark, step, rollouts)
        except Exception as exc:
            result = _result(benchmark, step, status="failed", failure=failure_of(exc), **_counts(rollouts))
        result = attrs.evolve(result, seconds=time.perf_counter() - started)
        return await self._finish(benchmark, result, rollouts)

    # --- inside -------------------------------------------------------------------------------------------------

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
        self, benchmark: BoundBenchmark, snapshot: SamplingClient, step: int, rollouts: list[Rollout]
    ) -> None:
        """Fill `rollouts`, in the order in which they finish; each goes on record at once."""
        policy = Policy(
            model=self._model(benchmark, snapshot),
            agent=benchmark.agent,
            verify=self._verify,
            sampling=attrs.evolve(benchmark.sampling, seed=self._seeds(f"evaluation/{benchmark.name}", 0)),
            num_samples=benchmark.num_samples,
            system_prompt=benchmark.system_prompt,
            version=snapshot.version,
        )
        limits = RolloutLimits(
            n_concurrent=benchmark.n_concurrent,
            timeout_seconds=self._timeout_seconds,
            wave=self._deterministic,
        )
        with boundary("rollout", type(benchmark.engine).__name__):
            async with _closing(benchmark.engine.run(benchmark.tasks, policy, limits)) as stream:
                async for rollout in stream:
                    rollouts.append(rollout)
                    if self._record is not None:
                        self._record.rollout(step, rollout, phase=benchmark.phase, benchmark=benchmark.name)
        _require_each_once(benchmark, rollouts)

    def _model(self, benchmark: BoundBenchmark, snapshot: SamplingClient) -> InferenceClient:
        if benchmark.inference is not None:
            return benchmark.inference
        if self._make_model is not None:
            return self._make_model(snapshot, benchmark)
        if self._renderer is None:
            raise PluginContractError("an evaluation without a renderer needs a make_model")
        return PolicyClient(snapshot, self._renderer)

    def _scored_result(
        self, benchmark: BoundBenchmark, step: int, rollouts: Sequence[Rollout]
    ) -> EvaluationResult:
        by_task = _by_task(benchmark, rollouts)
        scores = Scores(rewards=rewards_by_task(by_task), rollouts=by_task, clusters=benchmark.clusters)
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
            self._record.metrics(result.step, _values(result), phase=benchmark.phase)
        self._event(
            f"evaluation.{'finished' if result.status == 'completed' else result.status}",
            benchmark,
            step=result.step,
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
            yield f"{metric.name} leaves out {excluded} of {len(benchmark.tasks)} tasks for want of scored samples"


def _values(result: EvaluationResult) -> dict[str, float]:
    """A scoring as a line of metrics; a metric that isn't available is left out."""
    values = {f"{result.benchmark}/{name}": value.value for name, value in result.metrics.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    return {
        **numbers,
        f"{result.benchmark}/scored": float(result.scored),
        f"{result.benchmark}/no_score": float(result.no_score),
        f"{result.benchmark}/seconds": result.seconds,
    }
