"""`TrainingLoop`: drives an algorithm's batches through a backend, and owns everything around them.

A step is: build the batch, check it, write down the intent, submit forward/backward and optimiser together, wait
for both, check the results, write down that it is done, record metrics, notify listeners, then start evaluations
and save if due. Evaluations continue alongside the steps that follow. Steps are counted from 1 in everything that
is recorded: step n means that n optimiser steps are done.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from evsys.errors import BudgetExceeded, DataError, EvsysError, PluginContractError, boundary
from evsys.optional import SupportsMeasure, declared
from evsys.types import ForwardResult, OptimResult, RunContext, RunResult, Status, TrainingBatch, Usage
from evsys_runtime.accounting.metering import without_meter
from evsys_runtime.background import in_background
from evsys_runtime.cancelling import abandon
from evsys_runtime.evaluation.failures import is_not_finite
from evsys_runtime.training.checkpoints import place_of
from evsys_runtime.training.foreseen import scoring_seconds
from evsys_runtime.training.health import LossTrend, VanishedGradient, check_batch, check_result
from evsys_runtime.training.holding import hold, holds, is_undisturbed
from evsys_runtime.training.loop_progress import LoopProgress
from evsys_runtime.training.order import batch_id
from evsys_runtime.training.params import adam_params
from evsys_runtime.training.precision import in_float32
from evsys_runtime.training.retreat import HEALTHY, NOT_FINITE
from evsys_runtime.training.schedule import Schedule
from evsys_runtime.training.training_kind import capabilities_of, kind_of, training_cost
from evsys_runtime.training.two_pass import forward_backward
from evsys_runtime.training.warning_counts import WarningCounts

if TYPE_CHECKING:
    from evsys.types import AdamParams
    from evsys_runtime.training.algorithm import BaseAlgorithm

__all__ = ["TrainingLoop"]


class _Built(NamedTuple):
    """A batch that passed its checks, the algorithm's state right after it was built, and what it warned of meanwhile.

    With prefetch a step's checkpoint keeps this state: the algorithm itself may be one batch further by then.
    """

    batch: TrainingBatch
    loss_positions: int
    state: Mapping[str, Any]
    warnings: Sequence[str]


class _Sent(NamedTuple):
    """A submitted step, or about to be: its batch, and what it comes back with."""

    built: _Built
    adam: AdamParams
    outcome: Awaitable[tuple[ForwardResult, OptimResult]]


class TrainingLoop:
    """Runs one algorithm once.

    Args:
        algorithm: a `BaseAlgorithm`, or anything with its methods and a `config` with the fields of `TrainingParams`.
    """

    def __init__(self, algorithm: BaseAlgorithm) -> None:
        self.algorithm = algorithm
        self.warnings: WarningCounts = declared(algorithm, "warnings") or WarningCounts()
        self._ahead: asyncio.Task[_Built] | None = None
        self._behind: asyncio.Task[_Sent] | None = None
        self._submitted = asyncio.Event()
        self._trend = LossTrend()
        self._dead = VanishedGradient(stops=algorithm.config.on_collapse != "warn")

    async def run(self, ctx: RunContext) -> RunResult:
        """Train to the end, to `ctx.max_steps`, or until a stop is asked for; resumes where `ctx.checkpoints` says so.

        Raises:
            EvsysError: something failed; what was saved before stays. Cancellation passes through at once.
        """
        self.ctx = ctx
        self._name = str(kind_of(ctx, "algorithm") or type(self.algorithm).__name__)
        self._backend = str(kind_of(ctx, "backend") or type(ctx.clients.policy).__name__)
        self._capabilities = capabilities_of(ctx)
        try:
            return await self._run()
        except Exception:
            for line in self.warnings.lines():  # a failed run has no result to carry them
                ctx.warn(line)
            raise
        finally:
            await self._drop_ahead()

    # --- the run --------------------------------------------------------------------------------------------------

    async def _run(self) -> RunResult:
        ctx, algorithm = self.ctx, self.algorithm
        with self._attribute_errors():
            await algorithm.setup(ctx)
            total = algorithm.total_steps()
            peak, factor = algorithm.peak_learning_rate(), algorithm.config.rollback_lr_factor**ctx.retreats
            self._schedule = Schedule.of(algorithm.config, steps=total, peak=peak, factor=factor)
        self._total = total
        self._limit = total if ctx.max_steps is None else min(total, ctx.max_steps)
        progress = self._resume_progress()
        expected = await self._estimate(progress)
        await ctx.hooks.emit("evsys_run_started", ctx=ctx, total_steps=self._limit, estimate=expected)
        ctx.log.info(
            "training.started",
            step=progress.step,
            total_steps=self._limit,
            algorithm=self._name,
            estimate=expected,
        )
        # A rate of 0 is allowed, as a control, and must not pass for a training that had no effect.
        self._warn(self._schedule.standstill(progress.step, self._limit))
        # A resumed run may lack an evaluation at the very step that it continues from.
        await self._score(progress.step)
        status: Status = "completed"
        reason: str | None = None
        try:
            await self._steps(progress)
        except BudgetExceeded as error:
            if progress.step < self._limit:  # else nothing is missing
                status, reason = "budget_stopped", error.message
        except EvsysError as error:
            if not (is_not_finite(error) and declared(algorithm, "goes_back", False)):
                raise
            # Earlier checkpoints are kept; these weights gave that number, so they aren't saved, and their own step wasn't healthy.
            progress.metrics |= {HEALTHY: float(max(0, progress.step - 1)), NOT_FINITE: 1.0}
            return self._result(progress, "collapsed", error.message)
        if self._dead.reason is not None:
            self._warn(f"training collapsed: {self._dead.reason}")
        if self._dead.ends:
            status, reason = "collapsed", self._dead.reason
            progress.metrics |= {HEALTHY: float(max(0, progress.step - self._dead.lasted))}
        self._warn(self._trend.warning())
        if progress.saved != progress.step:
            await self._save(progress)
        return self._result(progress, status, reason)

    async def _steps(self, progress: LoopProgress) -> None:
        """Train up to the limit, or until a stop is asked for or the training has collapsed."""
        ctx = self.ctx
        # What is submitted already is waited for: the weights are those behind it.
        while progress.step < self._limit and not (
            (ctx.stop_requested is not None or self._dead.ends) and self._behind is None
        ):
            if holds(ctx) and self._behind is None:
                await hold(ctx, partial(self._save, progress), unsaved=0 < progress.step != progress.saved)
                continue  # a stop may have been asked for meanwhile
            await self._step(progress)
            await asyncio.sleep(0)  # a backend whose calls are done at once would never let others run

    async def _estimate(self, progress: LoopProgress) -> Mapping[str, float] | None:
        """The backend's estimate of the remaining steps, from the first batch, or from an upper bound of it if it
        is sampled; None without one.

        `steps` is their number; `scoring_seconds` is there if the duration of the evaluations on the way and at the
        end is known.
        """
        estimate = declared(self.ctx.clients.policy, "estimate")
        steps = self._limit - progress.step
        if estimate is None or steps < 1:
            return None
        if self.algorithm.prefetch:
            self._ahead = asyncio.create_task(self._build(progress.step))
            built = await asyncio.shield(self._ahead)
            expected = await in_background(estimate, built.batch.data, steps)
        else:
            foresee = declared(self.algorithm, "foreseen")
            with self._attribute_errors():
                foreseen = None if foresee is None else foresee(progress.step)
            if foreseen is None:
                return None
            expected = await in_background(estimate, foreseen.data, steps, foreseen.sampling)
        scoring = scoring_seconds(self.ctx.evaluate, progress.step, self._limit)
        told = {**expected, "steps": steps}
        return told if scoring is None else {**told, "scoring_seconds": scoring}

    def _result(self, progress: LoopProgress, status: Status, reason: str | None) -> RunResult:
        ctx = self.ctx
        if reason is None and progress.step < self._total:
            reason = ctx.stop_requested or "max_steps"
        ctx.log.info(
            "training.finished", step=progress.step, status=status, reason=reason, **progress.metrics
        )
        saved = progress.checkpoint
        return RunResult(
            status=status,
            steps=progress.step,
            run_id=ctx.run_id,
            stop_reason=reason,
            final_checkpoint=None if saved is None else place_of(saved, ctx.run_dir),
            metrics=progress.metrics,
            usage=Usage(
                trained_tokens=progress.tokens,
                seconds=progress.seconds,
                cost_usd=training_cost(ctx.clients.policy, progress.tokens),
            ),
            warnings=self.warnings.lines(),
        )

    # --- one step -------------------------------------------------------------------------------------------------

    async def _step(self, progress: LoopProgress) -> None:
        ctx, index = self.ctx, progress.step
        started = time.perf_counter()
        ctx.heartbeat()
        behind, self._behind = self._behind, None
        built, adam, outcome = await (self._send(index) if behind is None else behind)
        batch = built.batch
        if self._goes_ahead(index):
            outcome = asyncio.ensure_future(outcome)
            self._behind = asyncio.create_task(self._send_behind(index + 1))
        forward, optim = await outcome
        check_result(index + 1, forward, optim)
        if batch.loss_fn == "cross_entropy":
            self._trend.add(forward.loss)
        self._dead.add(batch, forward.loss, optim.grad_norm, built.loss_positions)
        progress.step = index + 1
        progress.tokens += forward.tokens
        progress.metrics = self._metrics(built, forward, optim, adam, index) | await self._measure(index + 1)
        # Not before step_metrics: an algorithm may learn from a step's result.
        progress.state = built.state if self.algorithm.prefetch else self._state()
        ctx.record.done(progress.step, batch.batch_id)
        ctx.record.metrics(progress.step, progress.metrics)
        ctx.heartbeat()
        seconds = time.perf_counter() - started
        progress.seconds += seconds
        self._log(progress, seconds, forward.tokens)
        # Before anything is awaited: what was spent counts, and is kept with a checkpoint, whoever interrupts this.
        spent_up = self._charge_step(forward.tokens, seconds)
        await ctx.hooks.emit("evsys_step_finished", ctx=ctx, step=progress.step, metrics=progress.metrics)
        await self._finish_step(progress)
        if spent_up is not None:
            raise spent_up

    def _charge_step(self, tokens: int, seconds: float) -> BudgetExceeded | None:
        """Count what a step used; that nothing is left ends the training after what belongs to the step."""
        if self.ctx.budget is None:
            return None
        cost = training_cost(self.ctx.clients.policy, tokens)
        try:
            self.ctx.budget.charge(Usage(trained_tokens=tokens, seconds=seconds, cost_usd=cost), steps=1)
        except BudgetExceeded as error:
            return error
        return None

    async def _finish_step(self, progress: LoopProgress) -> None:
        """Start to score, and save, where it is time.

        Scorings come first, and end whenever they do: a checkpoint says which of them were still under way, its own
        step's among them, so that a run killed meanwhile knows what it lacks.
        """
        await self._score(progress.step)
        if self._saves(progress.step):
            await self._save(progress)

    def _saves(self, step: int) -> bool:
        every = self.algorithm.config.save_every
        return bool(every and step % every == 0) or self._may_be_selected(step)

    def _only_to_select(self, step: int) -> bool:
        """True for a checkpoint that was not requested: it may go once a better one is known."""
        every = self.algorithm.config.save_every
        return self._may_be_selected(step) and not (every and step % every == 0) and step != self._limit

    def _may_be_selected(self, step: int) -> bool:
        """True for weights scored to select a checkpoint, so that they can be loaded again."""
        selects = declared(self.ctx.evaluate, "selects")
        return selects is not None and selects(step)

    async def _send(self, index: int) -> _Sent:
        """A step whose intent is on record; it is submitted when its outcome is awaited."""
        built = await self._next_batch(index)
        adam = adam_params(self.algorithm.config, self._schedule.at(index))
        self.ctx.record.intent(index + 1, built.batch.batch_id, built.batch.row_ids)
        self._submitted.clear()
        return _Sent(built, adam, self._submit(built.batch, adam, index))

    async def _send_behind(self, index: int) -> _Sent:
        """Submit a step once the one before it is submitted."""
        await self._submitted.wait()
        sent = await self._send(index)
        return sent._replace(outcome=asyncio.ensure_future(sent.outcome))

    def _goes_ahead(self, index: int) -> bool:
        """True where the next step may be submitted before this one is back, so that the backend never waits for
        us.

        The client says that it takes calls in order (`submits_ahead`), and nothing needs the weights between both
        steps: no checkpoint, no score, no measurement, and no budget, which might end the run there. Nor is the run
        deterministic: a stop that someone asks for then comes after the same step for every trainer.
        """
        ctx, algorithm, step = self.ctx, self.algorithm, index + 1
        return (
            algorithm.prefetch
            and declared(ctx.clients.policy, "submits_ahead", False)
            and step < self._limit
            and not ctx.deterministic
            and is_undisturbed(ctx)
            and ctx.budget is None
            and not self._saves(step)
            and not (ctx.evaluate is not None and ctx.evaluate.due(step))
            and not self._measures(step)
        )

    def _measures(self, step: int) -> bool:
        known = declared(self.algorithm, "measures")
        return isinstance(self.algorithm, SupportsMeasure) if known is None else known(step)

    async def _next_batch(self, index: int) -> _Built:
        ahead, self._ahead = self._ahead, None
        built = await ahead if ahead is not None else await self._build(index)
        for message in built.warnings:
            self._warn(message)
        return built

    async def _build(self, index: int) -> _Built:
        with self._attribute_errors(), self.warnings.holding() as held:
            building: object = self.algorithm.build_batch(index)
            if not inspect.isawaitable(building):
                hint = "define `async def build_batch(self, step_idx)`"
                raise PluginContractError("build_batch isn't async", hint=hint)
            batch = await building
            positions = check_batch(batch, index)
            batch.data = [in_float32(datum) for datum in batch.data]
            if not batch.batch_id:
                batch.batch_id = batch_id(batch.row_ids or [str(d.tokens.tolist()) for d in batch.data])
            if positions == 0:
                self._warn("a batch had no signal: all its advantages are 0")
            return _Built(batch, positions, self._state() if self.algorithm.prefetch else {}, held)

    async def _submit(
        self, batch: TrainingBatch, adam: AdamParams, index: int
    ) -> tuple[ForwardResult, OptimResult]:
        """Queue forward/backward and optimiser, one right behind the other, and wait for both."""
        client = without_meter(self.ctx.clients.policy)
        stepping: list[Awaitable[OptimResult]] = []

        def submitted() -> None:
            stepping.append(client.optim_step(adam))
            self._submitted.set()
            if self.algorithm.prefetch and index + 1 < self._limit:
                self._ahead = asyncio.create_task(self._build(index + 1))

        with boundary("backend", self._backend, self.ctx.run_id):
            try:
                forward = await forward_backward(
                    client,
                    self._capabilities,
                    batch.data,
                    batch.loss_fn,
                    batch.loss_params,
                    submitted=submitted,
                    most_tokens=self.algorithm.config.micro_batch_tokens,
                )
            except BaseException:
                for pending in stepping:
                    abandon(pending)
                raise
            return forward, await stepping[0]

    def _metrics(
        self, built: _Built, forward: ForwardResult, optim: OptimResult, adam: AdamParams, index: int
    ) -> dict[str, float]:
        found: dict[str, float] = {}
        if forward.loss is not None:
            found["loss"] = forward.loss
        if optim.grad_norm is not None:
            found["grad_norm"] = optim.grad_norm
        found |= {
            "learning_rate": adam.learning_rate,
            "tokens": float(forward.tokens),
            "loss_tokens": float(built.loss_positions),
        }
        with self._attribute_errors():
            own = self.algorithm.step_metrics(index, built.batch, forward)
        return {
            name: float(value)
            for part in (found, forward.metrics, optim.metrics, built.batch.metrics, own)
            for name, value in part.items()
        }

    async def _measure(self, step: int) -> dict[str, float]:
        """The algorithm's measurements by passes over the model; none if it doesn't offer any."""
        measure = declared(self.algorithm, "measure")
        if measure is None:
            return {}
        with self._attribute_errors():
            found = await measure(step, last=step == self._limit)
        return {name: float(value) for name, value in found.items()}

    def _log(self, progress: LoopProgress, seconds: float, tokens: int) -> None:
        every = self.algorithm.config.log_every
        if progress.step % every == 0 or progress.step == self._limit:
            self.ctx.log.info(
                "step.finished",
                step=progress.step,
                loss=progress.metrics.get("loss"),
                seconds=round(seconds, 4),
                tokens_per_second=round(tokens / max(seconds, 1e-9)),
            )

    # --- scores and checkpoints -------------------------------------------------------------------------------------

    async def _score(self, step: int) -> None:
        evaluate = self.ctx.evaluate
        if evaluate is None or not evaluate.due(step):
            return
        with boundary("backend", self._backend, self.ctx.run_id):
            snapshot = await without_meter(self.ctx.clients.policy).sampling_client()
        await evaluate.submit(step, snapshot)
        self.ctx.heartbeat()

    async def _save(self, progress: LoopProgress) -> None:
        ctx = self.ctx
        loop = {
            "step": progress.step,
            "algorithm": dict(progress.state),
            "data": {"fingerprint": ctx.data.fingerprint, "rows": len(ctx.data)},
            "tokens": progress.tokens,
            "seconds": progress.seconds,
            "metrics": progress.metrics,
            "warnings": self.warnings.counts(),
            "schedule": self._schedule.state(),
            "trend": self._trend.state(),
            "dead": self._dead.state(),
            "stop": ctx.stop_requested,
            "scorings": list(declared(ctx.evaluate, "pending", ())),
            "only_to_select": self._only_to_select(progress.step),
        }
        with boundary("backend", self._backend, ctx.run_id):
            checkpoint = await ctx.checkpoints.save(progress.step, ctx.clients.policy, loop)
        progress.saved, progress.checkpoint = progress.step, checkpoint
        ctx.heartbeat()
        ctx.log.info("checkpoint.saved", step=progress.step, directory=str(checkpoint.directory))
        await ctx.hooks.emit("evsys_checkpoint_saved", ctx=ctx, checkpoint=checkpoint)

    def _resume_progress(self) -> LoopProgress:
        """The step that this attempt starts at: 0, or that of its checkpoint."""
        ctx, restored = self.ctx, self.ctx.checkpoints.restored
        if restored is None:
            return LoopProgress(state=self._state())
        loop = restored.loop
        then = loop.get("data", {}).get("fingerprint")
        if then is not None and then != ctx.data.fingerprint:
            raise DataError(
                f"the rows have changed since step {restored.step} of this run ({then} then, {ctx.data.fingerprint} now)",
                hint="restore the data, or start a new run",
            )
        state = loop.get("algorithm", {})
        with self._attribute_errors():
            self.algorithm.load_state(state)
        self.warnings.load(loop.get("warnings", ()))
        if "schedule" in loop and restored.step < self._limit:
            self._warn(self._schedule.change_since(loop["schedule"], restored.step))
        self._trend.load(loop.get("trend", ()))
        self._dead.load(loop.get("dead", ()))
        return LoopProgress(
            step=restored.step,
            saved=restored.step,
            metrics={name: value for name, value in loop.get("metrics", {}).items() if value is not None},
            tokens=loop.get("tokens", 0),
            seconds=loop.get("seconds", 0.0),
            state=state,
            checkpoint=restored,
        )

    def _state(self) -> Mapping[str, Any]:
        """The algorithm's state as it is now, regardless of the algorithm continues to change in it."""
        with self._attribute_errors():
            return copy.deepcopy(dict(self.algorithm.state()))

    # --- small things -----------------------------------------------------------------------------------------------

    def _attribute_errors(self) -> Any:
        return boundary("algorithm", self._name, self.ctx.run_id)

    def _warn(self, message: str | None) -> None:
        if message is not None and self.warnings.add(message):
            self.ctx.log.warning("training.odd", what=message)

    async def _drop_ahead(self) -> None:
        """Give up what no one wants any more: a batch in the making, a submitted step."""
        behind, self._behind = self._behind, None
        ahead, self._ahead = self._ahead, None
        for task in (behind, ahead):
            if task is None:
                continue
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(outcome, _Sent):
                abandon(outcome.outcome)
            elif isinstance(outcome, Exception):
                self.ctx.log.warning("batch.discarded", reason=str(outcome))
