"""Scores benchmark entries on snapshots of the model, in the loop and after it, by one and the same code.

`submit` starts a scoring alongside the training and returns. A scoring never raises into training, unless the record can't be
written: what fails, is given up or is cut off becomes an `EvaluationResult` that says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, BudgetExceeded, RunError, StoreError
from evsys.types import EvaluationResult, Rollout, Usage
from evsys_runtime.cancelling import own_task_cancelled
from evsys_runtime.evaluation.benchmarks import ApiModel, BoundBenchmark
from evsys_runtime.evaluation.entry_rollouts import EntryRollouts, MakeModel
from evsys_runtime.evaluation.in_flight import InFlight
from evsys_runtime.evaluation.progress import time_limit
from evsys_runtime.evaluation.results import (
    failed_result,
    missing_result,
    recorded_values,
    scored_result,
    without_cost,
)
from evsys_runtime.evaluation.verify import make_verify

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import InferenceClient, Log, Recorder, Renderer, SamplingClient
    from evsys.types import RunContext
    from evsys_runtime.evaluation.result_cache import ResultCache

__all__ = ["Evaluator"]

IN_FLIGHT = 2
"""Snapshots scored at once; each is a copy of what is trained."""

SILENT_SECONDS = 3600.0
"""Time beyond that of one rollout after which a scoring is given up, where no rollout has ended."""

CLOSE_SECONDS = 10.0
"""How long what is cut off may take to end."""

RELEASE_SECONDS = 60.0
"""How long a snapshot may take to close."""

type Share = Callable[
    [BoundBenchmark, Callable[[], Awaitable[EvaluationResult]]], Awaitable[EvaluationResult | None]
]


@attrs.define(kw_only=True, eq=False, slots=False)
class Evaluator:
    """A core `Evaluate` over bound benchmark entries.

    A snapshot's entries are scored one after another, so that no entry's samples depend on what else is scored;
    `in_flight` snapshots are scored side by side, alongside the training.

    Args:
        benchmarks: the entries, in order.
        renderer: the model's renderer; None where `make_model` needs none.
        seeds: gives the derived seed of a purpose; arms that share it are paired.
        registry: where the tasks' verifiers are looked up.
        record: gets each rollout and each scoring's metrics.
        keep: gets each scoring, whole, once its metrics are on record.
        log: gets an event for each scoring.
        deterministic: sample in fixed waves, so that each scoring has the same bits.
        score_untrained: score every entry at step 0 too.
        selecting: the entry by whose scores a checkpoint is going to be selected; None if the last one counts.
        known: earlier evaluations, which are not repeated: of shared starting weights, or by the attempts that this
            one continues from.
        expected_seconds: how long a scoring of an entry took elsewhere.
        make_model: makes the model client of a scoring; by default the snapshot behind the renderer.
        timeout_seconds: longest time of one rollout.
        directory: the run's folder, where engines may keep files of rollouts; None keeps none.
        endpoints: where agents reach the model over HTTP, see `Policy`.
        cache: knows rollouts made before; None makes all again.
        share: calls its second argument, which scores the untrained weights, unless another run does: then it
            waits, and gives that run's result.
        in_flight: how many snapshots may be scored at once; `submit` waits beyond that.
        silent_seconds: a scoring in which no rollout ends for as long as one may take and so many seconds more has
            failed.
        hung: is notified of what is given up, just before that.
        charge: gets what each rollout and its verdict used; a `BudgetExceeded` of it ends a scoring, which is then
            missing.
    """

    benchmarks: Sequence[BoundBenchmark] = attrs.field(kw_only=False)
    _renderer: Renderer | None = attrs.field(kw_only=False)
    _seeds: Callable[..., int]
    _registry: Registry
    _record: Recorder | None = None
    _keep_whole: Callable[[EvaluationResult], None] | None = attrs.field(default=None, alias="keep")
    _log: Log | None = None
    _deterministic: bool = False
    _score_untrained: bool = False
    _selecting: str | None = None
    _known: Iterable[EvaluationResult] = ()
    _expected_seconds: Mapping[str, float] = attrs.field(factory=dict)
    _make_model: MakeModel | None = None
    _timeout_seconds: float = 600.0
    _directory: Path | None = None
    _endpoints: Any = None
    _cache: ResultCache | None = None
    _share: Share | None = None
    _in_flight: int = IN_FLIGHT
    _silent_seconds: float = SILENT_SECONDS
    _hung: Callable[[str], None] = attrs.field(default=lambda _what: None)
    _charge: Callable[[Usage], None] = attrs.field(default=lambda _usage: None)

    closings: int = attrs.field(default=0, init=False)
    """Snapshots that began to be closed."""
    _ctx: RunContext | None = attrs.field(default=None, init=False)
    _pending: dict[tuple[int, str], BoundBenchmark] = attrs.field(factory=dict, init=False)
    _asking: list[BoundBenchmark] = attrs.field(factory=list, init=False)
    _snapshots: list[SamplingClient] = attrs.field(factory=list, init=False)
    _closing: int = attrs.field(default=0, init=False)
    _ended_by: str | None = attrs.field(default=None, init=False)
    _results: list[EvaluationResult] = attrs.field(init=False)
    _seconds: dict[str, float] = attrs.field(init=False)
    _scorings: InFlight = attrs.field(init=False)
    _rollouts: EntryRollouts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._results, self._seconds = list(self._known), dict(self._expected_seconds)
        self._scorings = InFlight(self._in_flight)
        self._rollouts = EntryRollouts(
            renderer=self._renderer,
            make_model=self._make_model,
            verify=make_verify(self._registry),
            seeds=self._seeds,
            record=self._record,
            deterministic=self._deterministic,
            timeout_seconds=self._timeout_seconds,
            silent_seconds=self._silent_seconds,
            directory=self._directory,
            endpoints=self._endpoints,
            cache=self._cache,
            hung=self._hung,
            charge=self._charge,
        )

    def bind(self, ctx: RunContext) -> None:
        """Notify the hooks of `ctx` of each evaluation from here on."""
        self._ctx = self._rollouts.ctx = ctx

    # --- the core protocol --------------------------------------------------------------------------------------

    def due(self, step: int) -> bool:
        """True when an entry wants scoring after `step` optimiser steps, and neither was nor is being scored there."""
        return bool(self._due(step))

    def selects(self, step: int) -> bool:
        """True if the weights after `step` steps may be selected, and so have to be saved."""
        every = next((b.run_every for b in self.benchmarks if b.name == self._selecting), None)
        return every is not None and step > 0 and step % every == 0

    async def submit(self, step: int, snapshot: SamplingClient) -> None:
        """Start to score what is due at `step`, and return; the snapshot is closed when all of it is scored.

        If as many snapshots as are allowed are being scored, this waits until one of them is done.

        Raises:
            StoreError: an earlier scoring couldn't be put on record.
        """
        await self._begin(self._due(step), step, snapshot)

    async def drain(self) -> Sequence[EvaluationResult]:
        """Wait for every scoring; all results so far, by step, then in the order of the entries.

        It ends: a scoring in which nothing happens any more is given up, and recorded as failed.

        Raises:
            StoreError: a scoring couldn't be put on record.
        """
        await self._scorings.wait()
        return self.results

    def estimate(self, start: int, end: int) -> float | None:
        """Seconds that the scorings after step `start` up to `end` take, the last weights' included.

        Judged by the last scoring of each entry; None where one was never scored.
        """
        times = {b.name: _evaluation_count(b, start, end) for b in self.benchmarks}
        if any(n and name not in self._seconds for name, n in times.items()):
            return None
        return sum((n * self._seconds[name] for name, n in times.items() if n), 0.0)

    @property
    def results(self) -> Sequence[EvaluationResult]:
        """The results so far, in the order of `drain`."""
        order = {benchmark.name: place for place, benchmark in enumerate(self.benchmarks)}
        return sorted(
            self._results, key=lambda result: (result.step, order.get(result.benchmark, len(order)))
        )

    @property
    def pending(self) -> Sequence[Mapping[str, Any]]:
        """The submitted evaluations without a result, as `{step, benchmark}`, in the order of submission."""
        return [{"step": step, "benchmark": name} for step, name in self._pending]

    @property
    def patience(self) -> float:
        """Seconds after which what is under way (a scoring, the closing of a snapshot) is given up here; 0 where nothing is."""
        closing = RELEASE_SECONDS if self._closing else 0.0
        return max([closing, *map(self._rollouts.patience, (*self._pending.values(), *self._asking))])

    # --- after training -----------------------------------------------------------------------------------------

    async def final(
        self,
        step: int,
        snapshot: SamplingClient | None,
        *,
        reason: str = "there was no snapshot to score",
        entries: Collection[str] | None = None,
        through: InferenceClient | None = None,
    ) -> Sequence[EvaluationResult]:
        """Score entries on the trained weights, unless one was scored at this very step; all results, by step.

        Waits for what was submitted before as well.

        Args:
            step: optimiser steps behind the weights.
            snapshot: those weights; closed afterwards. None records each of these scorings as missing.
            reason: why there is no snapshot.
            entries: their names; None for all.
            through: generates in place of the snapshot, for entries without a client of their own. They are scored
                through it also where the snapshot was scored at this step, and that scoring gives way.
        """
        wanted = [b for b in self.benchmarks if entries is None or b.name in entries]
        if through is not None:
            await self.drain()
            served = {b.name for b in wanted if b.inference is None}
            self._results = [
                r for r in self._results if not (r.benchmark in served and r.step == step and r.model is None)
            ]
            wanted = [attrs.evolve(b, inference=through) if b.name in served else b for b in wanted]
        wanted = [b for b in wanted if not self._is_scored(b, step)]
        if snapshot is not None:
            await self._begin(wanted, step, snapshot)
        else:
            for benchmark in wanted:
                await self._finish(benchmark, missing_result(benchmark, step, reason))
        return await self.drain()

    async def give_up(self, step: int, reason: str) -> None:
        """Record what is due at `step` as missing: there are no weights any more to score."""
        for benchmark in self._due(step):
            await self._finish(benchmark, missing_result(benchmark, step, reason))

    async def score(self, benchmark: BoundBenchmark, snapshot: SamplingClient, step: int) -> EvaluationResult:
        """Score one entry on a snapshot, which stays open. A failure is a result; only a broken record raises."""
        return await self._score_asked(benchmark, snapshot, step)

    async def score_model(self, benchmark: BoundBenchmark, model: ApiModel) -> EvaluationResult:
        """Score an entry on an API model, as `score` does on a snapshot; the result has its name."""
        asked = attrs.evolve(benchmark, inference=model.client, inference_spec=model.spec)
        return await self._score_asked(asked, None, 0, model=model.name)

    async def _score_asked(
        self, benchmark: BoundBenchmark, snapshot: SamplingClient | None, step: int, model: str | None = None
    ) -> EvaluationResult:
        self._asking.append(benchmark)
        try:
            return await self._score(benchmark, snapshot, step, model=model)
        finally:
            self._asking.remove(benchmark)

    async def close(self, reason: str) -> None:
        """End the running evaluations: no task continues, every snapshot is closed.

        Submitted entries without a result are recorded as missing with `reason`; listeners aren't notified. Safe to
        call twice, and while nothing is evaluated.

        Raises:
            StoreError: that can't be put on record.
        """
        self._ended_by = reason
        try:
            left = await self._scorings.end(CLOSE_SECONDS)
            if left and self._log is not None:
                self._log.warning("evaluation.left_running", scorings=left, seconds=CLOSE_SECONDS)
            for snapshot in tuple(self._snapshots):
                await self._release(snapshot)
        finally:
            for (step, _), benchmark in tuple(self._pending.items()):
                self._keep(benchmark, missing_result(benchmark, step, reason))

    # --- when ---------------------------------------------------------------------------------------------------

    def _due(self, step: int) -> list[BoundBenchmark]:
        if step == 0:
            wanted = list(self.benchmarks) if self._score_untrained else []
        else:
            wanted = [b for b in self.benchmarks if b.run_every is not None and step % b.run_every == 0]
        return [benchmark for benchmark in wanted if not self._is_scored(benchmark, step)]

    def _is_scored(self, benchmark: BoundBenchmark, step: int) -> bool:
        """True also while it is being scored."""
        return (step, benchmark.name) in self._pending or any(
            r.benchmark == benchmark.name and r.step == step and r.model is None for r in self._results
        )

    async def _begin(self, wanted: Sequence[BoundBenchmark], step: int, snapshot: SamplingClient) -> None:
        """Take the snapshot over, and start to score it on the wanted entries once there is room."""
        self._snapshots.append(snapshot)
        self._pending |= {(step, benchmark.name): benchmark for benchmark in wanted}
        try:
            await self._scorings.start(lambda: self._score_each(wanted, step, snapshot))
        except BaseException:
            await self._release(snapshot)
            raise

    async def _score_each(
        self, benchmarks: Sequence[BoundBenchmark], step: int, snapshot: SamplingClient
    ) -> None:
        try:
            for benchmark in benchmarks:
                if self._ended_by is not None:  # its turn came after `close`
                    self._keep(benchmark, missing_result(benchmark, step, self._ended_by))
                elif step == 0 and self._share is not None:
                    await self._score_shared(benchmark, snapshot, self._share)
                else:
                    await self._score(benchmark, snapshot, step)
        finally:
            await self._release(snapshot)

    async def _score_shared(self, benchmark: BoundBenchmark, snapshot: SamplingClient, share: Share) -> None:
        """Score untrained weights, or take the result of another run, which has it on record."""
        known = await share(benchmark, lambda: self._score(benchmark, snapshot, 0))
        if known is not None and self._pending.pop((0, benchmark.name), None) is not None:
            self._seconds.setdefault(benchmark.name, known.seconds)
            self._results.append(without_cost(known))

    async def _release(self, snapshot: SamplingClient) -> None:
        """Close a snapshot once; that it can't be closed costs memory and no score."""
        if not any(snapshot is held for held in self._snapshots):
            return
        self._snapshots = [held for held in self._snapshots if held is not snapshot]
        self._closing += 1
        self.closings += 1
        try:
            async with time_limit(RELEASE_SECONDS, lambda: self._hung("a snapshot couldn't be closed")):
                await snapshot.close()
        except PLUGIN_FAILURES as exc:
            message = f"a snapshot couldn't be closed: {type(exc).__name__}: {exc}"
            if self._log is not None:
                self._log.warning("snapshot.left_open", reason=message, exc_info=exc)
            if self._ctx is not None:
                self._ctx.warn(message)
        finally:
            self._closing -= 1

    # --- one scoring --------------------------------------------------------------------------------------------

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

        def ended(result: EvaluationResult) -> EvaluationResult:
            seconds = time.perf_counter() - started
            # Rollouts run side by side: their own seconds add up to more than passed here.
            usage = attrs.evolve(result.usage, seconds=seconds)
            return attrs.evolve(result, model=model, seconds=seconds, usage=usage)

        try:
            self._charge(Usage())  # nothing is asked where nothing is left
            await self._rollouts.fill(rollouts, benchmark, snapshot, step, model)
            result = scored_result(benchmark, step, rollouts, self._seeds)
        except asyncio.CancelledError as exc:
            if own_task_cancelled():
                self._cut_off(benchmark, ended(missing_result(benchmark, step, self._reason, rollouts)), exc)
                raise
            lost = RunError("a plugin cancelled its own task unexpectedly")
            result = failed_result(benchmark, step, lost, rollouts)
        except BudgetExceeded as exc:
            result = missing_result(benchmark, step, exc.message, rollouts)
        except PLUGIN_FAILURES as exc:
            result = failed_result(benchmark, step, exc, rollouts)
        result = ended(result)
        if model is None:
            self._seconds[benchmark.name] = result.seconds
        return await self._finish(benchmark, result, rollouts)

    # --- its end ------------------------------------------------------------------------------------------------

    @property
    def _reason(self) -> str:
        return self._ended_by or "it was interrupted"

    async def _finish(
        self, benchmark: BoundBenchmark, result: EvaluationResult, rollouts: Sequence[Rollout] = ()
    ) -> EvaluationResult:
        """Record a result and notify the listeners."""
        if not self._keep(benchmark, result, rollouts):
            return result
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

    def _keep(
        self, benchmark: BoundBenchmark, result: EvaluationResult, rollouts: Sequence[Rollout] = ()
    ) -> bool:
        """Put a result on record; nothing is awaited, so it works after Ctrl-C.

        False, and nothing is done, where it comes from a task that continued after `close` had recorded its entry as missing.
        """
        key = (result.step, benchmark.name)
        late = self._ended_by is not None and key not in self._pending
        if late and result.model is None:
            return False
        if result.model is None:
            self._pending.pop(key, None)
        self._results.append(result)
        if self._record is not None:
            self._record.metrics(result.step, recorded_values(result, rollouts), phase=benchmark.phase)
        if self._keep_whole is not None:
            self._keep_whole(result)
        ended = "finished" if result.fully_scored else result.status
        self._event(
            f"evaluation.{'metric_failed' if ended == 'completed' else ended}",
            benchmark,
            step=result.step,
            model=result.model,
            scored=result.scored,
            no_score=result.no_score,
            metrics={name: value.value for name, value in result.metrics.items()},
            reason=result.failure.message if result.failure else None,
        )
        return True

    def _cut_off(
        self, benchmark: BoundBenchmark, result: EvaluationResult, by: asyncio.CancelledError
    ) -> None:
        """Keep what a cancelled evaluation came to; the cancellation continues in any case."""
        try:
            self._keep(benchmark, result)
        except StoreError as error:
            by.add_note(f"Results so far couldn't be written: {error}")

    def _event(self, event: str, benchmark: BoundBenchmark, **facts: Any) -> None:
        if self._log is not None:
            level = self._log.info if event.endswith((".started", ".finished")) else self._log.warning
            level(event, benchmark=benchmark.name, split=benchmark.split, **facts)


def _evaluation_count(benchmark: BoundBenchmark, start: int, end: int) -> int:
    """How often an entry is evaluated after step `start`: when it is due, and at the end."""
    every = benchmark.run_every
    return (end // every - start // every) + (end % every > 0) if every else 1
