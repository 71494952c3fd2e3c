"""One arm from its data to its scores. Phases follow each other; a failure belongs to the phase and plugin it came from,
and what was trained and scored before it stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs

from evsys import HookManager
from evsys.errors import PLUGIN_FAILURES, BudgetExceeded, EvsysError, RunError, StoreError, boundary
from evsys.protocols import Algorithm, Log, TrainingClient
from evsys.types import (
    ArmResult,
    Checkpoint,
    Clients,
    EvaluationResult,
    ModelSpec,
    RunContext,
    RunResult,
    SelectedCheckpoint,
    Status,
)
from evsys_runtime.background import in_background
from evsys_runtime.config.asked_model import asked_model
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.experiment.added.search_scores import register_judge
from evsys_runtime.experiment.arms.backend import ArmBackend
from evsys_runtime.experiment.arms.best_checkpoint import BestCheckpoint
from evsys_runtime.experiment.arms.contracts import trained
from evsys_runtime.experiment.arms.data import ArmData
from evsys_runtime.experiment.arms.going_back import go_back, way_back
from evsys_runtime.experiment.arms.listening import LAST_WORD_SECONDS, Listening
from evsys_runtime.experiment.arms.result import arm_result, kept_rollouts, within_budget
from evsys_runtime.experiment.arms.roles import ArmRole, roles_of
from evsys_runtime.experiment.arms.rollouts import training_rollouts
from evsys_runtime.experiment.arms.run_context import run_context
from evsys_runtime.experiment.arms.score_only import taken_as_trained
from evsys_runtime.experiment.arms.scores import ArmScores
from evsys_runtime.experiment.arms.select_checkpoint import select_checkpoint
from evsys_runtime.experiment.arms.so_far import so_far
from evsys_runtime.experiment.arms.untrained import untrained_keys
from evsys_runtime.experiment.chains.chain import start_of
from evsys_runtime.experiment.facts import run_facts
from evsys_runtime.experiment.resuming.taken_up import TakenUp, note_trained
from evsys_runtime.experiment.secrets import without_secrets
from evsys_runtime.experiment.session import Session, run_id_of
from evsys_runtime.experiment.spending.budget import ArmBudget
from evsys_runtime.experiment.spending.charging import ScoringCharges, left_of
from evsys_runtime.experiment.watching.interrupts import asked_to_stop, interruption
from evsys_runtime.experiment.watching.watchdog import Watchdog, is_stall, watchdog_of
from evsys_runtime.record.keep_rollouts import KeepRollouts
from evsys_runtime.record.logging import context
from evsys_runtime.record.run_record import RunRecord
from evsys_runtime.serving.rollouts import RolloutEndpoints, rollout_endpoints
from evsys_runtime.training.floating_point import floating_point_in
from evsys_runtime.training.retreat import Retreat

__all__ = ["run_arm"]


async def run_arm(session: Session, arm: ArmConfig) -> RunResult:
    """Train and score one arm at one repeat, and record it. Never raises for a failure of the arm itself."""
    run_id = run_id_of(arm)
    record = session.record.run(
        run_id,
        hypothesis=session.plan.experiment.metadata.hypothesis,
        facts=run_facts(arm, dry=session.options.dry),
        keep_rollouts=KeepRollouts() if session.options.dry else kept_rollouts(session),
        log_settings=session.log_settings,
    )
    taken = session.taken_up.get(run_id, TakenUp())
    record.start_attempt(**taken.next_attempt)
    started = time.monotonic() - taken.seconds
    run = _ArmRun.begin(session, arm, record, taken)
    try:
        with context(arm=arm.name):
            result = await run.outcome()
            while run.retreat is not None and result.status == "collapsed":
                try:
                    run.leave_behind(result, time.monotonic() - started)
                    run = await run.gone_back(run.retreat)
                except EvsysError as exc:  # the collapse stands, and this arm ends there
                    run.attempt = record.attempt
                    result = run.failed(exc)
                    break
                result = await run.outcome()
            return await run.end(result, time.monotonic() - started)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if run_id not in session.results:
            await run.end_cut_off(time.monotonic() - started)
        raise
    finally:
        del session.watched[run_id]
        if run.watch.left_running:
            run.hooks.close()
        if run.budget is not None:
            run.budget.ended(session.results.get(run_id), went_back=run.taken.retreats > 0)


@attrs.define(kw_only=True, eq=False)
class _ArmRun:
    """The state of one attempt: what each phase has made so far."""

    session: Session
    arm: ArmConfig
    record: RunRecord
    log: Log
    attempt: int
    watch: Watchdog
    taken: TakenUp
    warnings: list[str] = attrs.field(factory=list)
    hooks: HookManager = attrs.field(factory=HookManager)
    ctx: RunContext | None = None
    listening: Listening = attrs.field(factory=Listening)
    evaluator: Evaluator | None = None
    scored: Sequence[EvaluationResult] = ()
    trained: RunResult | None = None
    lost: RunResult | None = None
    restore: Checkpoint | None = None
    retreat: Retreat | None = None
    selected: SelectedCheckpoint | None = None
    best: BestCheckpoint = attrs.field(factory=BestCheckpoint)
    rows: ArmData | None = None
    charges: list[ScoringCharges] = attrs.field(factory=list)
    benchmarks: tuple[BoundBenchmark, ...] = ()
    backend: ArmBackend = attrs.field(init=False)

    @backend.default
    def _backend(self) -> ArmBackend:
        return ArmBackend(
            session=self.session,
            arm=self.arm,
            record=self.record,
            log=self.log,
            watch=self.watch,
            warnings=self.warnings,
        )

    @classmethod
    def begin(cls, session: Session, arm: ArmConfig, record: RunRecord, taken: TakenUp) -> _ArmRun:
        """The attempt that the record has just started."""
        log = record.logger(arm=arm.name)
        watch = session.watched[run_id_of(arm)] = watchdog_of(record, session.plan.experiment.watchdog, log)
        return cls(
            session=session, arm=arm, record=record, log=log, attempt=record.attempt, watch=watch, taken=taken
        )

    async def live(self) -> RunResult:
        """All phases; the backend is torn down whatever happens."""
        arm, registry, success = self.arm, self.session.plan.registry, self.session.plan.success
        self.taken = await in_background(taken_as_trained, self.session, arm, self.taken)
        self.hooks = self.session.listeners(self.log, self.watch.dump)
        self.hooks.register(self.watch, "watchdog")
        if self.budget is not None:
            self.hooks.register(self.budget, "budget")
        register_judge(self.session, arm, self.hooks)
        self.benchmarks = self.session.benchmarks_of(arm)
        algorithm = registry.build("algorithm", arm.run.algorithm.kind, resolve(arm.run.algorithm.params))
        begins = await in_background(start_of, self.session, arm, asked_model(arm.run.model, algorithm))
        model, self.restore = begins.model, begins.checkpoint
        chosen_by = self.session.selection_of(arm)
        self.best = await in_background(BestCheckpoint.of, self.record, success, self.benchmarks, chosen_by)
        self.hooks.register(self.best, "best checkpoint")
        self.scored, self.trained = self.taken.scored, self.taken.trained
        self.warnings += self.taken.odd
        self.watch.awaits("data", arm.run.data.source_kind or "data")
        self.rows = ArmData(
            session=self.session,
            arm=arm,
            record=self.record,
            watch=self.watch,
            benchmarks=self.benchmarks,
            warnings=self.warnings,
            known_as=self.taken.identity,
        )
        roles = roles_of(arm, algorithm, self.session.plan.project_root)
        data = await self.rows.load(algorithm, begins, roles)
        gone = await self._make_up(algorithm, model, data)
        start = self.taken.restored or self.restore
        if self.trained is not None:  # scoring alone needs nobody beside the model
            roles = ()
        async with self._prepared(algorithm, model, data, start, roles) as (client, scores, ctx):
            told = {"rows": len(data), "dropped": dict(data.dropped)}
            await self.hooks.emit("evsys_data_prepared", ctx=ctx, **told)
            for step, why in gone.items():
                await scores.evaluator.give_up(step, why)
            if self.taken.checkpoint is None:
                await scores.at(client, 0)
            self.trained = await self._train(algorithm, ctx)
            if not self.session.options.dry:
                self.retreat = way_back(algorithm, self.trained, self.taken.retreats)
            self.watch.awaits("evaluation", "scoring")
            await in_background(self.rows.note_stages, data)
            if self.retreat is not None:
                await scores.left_behind(client, self.trained.steps, self.retreat.kind)
                return self.trained
            chosen = await self._select(client, scores, self.trained)
            if chosen is None:
                await scores.results(client, self.trained.steps, self.trained)
        if chosen is not None:
            self.scored = scores.evaluator.results
            async with self._prepared(algorithm, model, data, chosen) as (client, scores, _):
                await scores.results(client, chosen.step)
        stopped = None if self.budget is None else self.budget.stopped
        return within_budget(self.trained, scores.evaluator.results, stopped)

    @property
    def budget(self) -> ArmBudget | None:
        """What this arm may spend; None without limits."""
        return self.session.budgets.get(run_id_of(self.arm))

    async def _train(self, algorithm: Algorithm, ctx: RunContext) -> RunResult:
        """Train, unless an earlier attempt had trained to the end."""
        if self.trained is not None:
            await self.hooks.emit("evsys_run_started", ctx=ctx, total_steps=self.trained.steps, estimate=None)
            return self.trained
        kind = self.arm.run.algorithm.kind
        self.watch.awaits("algorithm", kind)
        with boundary("algorithm", kind, run_id_of(self.arm)):
            result = self.backend.counted_in(await trained(algorithm, ctx, kind))
        await in_background(note_trained, self.record, result)
        return result

    async def _make_up(
        self, algorithm: Algorithm, model: ModelSpec, data: MaterializedDataset
    ) -> Mapping[int, str]:
        """Make up the scores that earlier attempts lack; why that can't be done, by step."""
        gone = {}
        for step in self._lost():
            try:
                start = self.restore if step == 0 else self.taken.snapshot(step)
            except StoreError as error:
                gone[step] = error.message
                continue
            async with self._prepared(algorithm, model, data, start) as (client, scores, _):
                await scores.at(client, step)
                await scores.evaluator.drain()
                self.scored = scores.evaluator.results
        return gone

    async def _select(
        self, client: TrainingClient, scores: ArmScores, trained: RunResult
    ) -> Checkpoint | None:
        """Select the checkpoint that counts; None if its weights are those that the client has."""
        if self.session.selection_of(self.arm).checkpoint == "last":
            return None
        await scores.to_select(client, trained.steps)
        place = self.record.directory
        self.selected = await in_background(select_checkpoint, self.best, trained, scores.evaluator, place)
        if self.selected is None or self.selected.step == trained.steps:
            return None
        self.log.info("checkpoint.selected", step=self.selected.step, by=self.selected.by)
        return self.best.selected

    def _lost(self) -> list[int]:
        """Steps before the one from which this attempt goes on whose scores are still to be made."""
        shared = self.session.untrained
        wanted = any(shared.known(key) is None for key in untrained_keys(self.session, self.arm))
        return self.taken.lost(self.benchmarks, untrained=wanted)

    @asynccontextmanager
    async def _prepared(
        self,
        algorithm: Algorithm,
        model: ModelSpec,
        data: MaterializedDataset,
        start: Checkpoint | None,
        roles: Sequence[ArmRole] = (),
    ) -> AsyncIterator[tuple[TrainingClient, ArmScores, RunContext]]:
        """A model that is loaded, with what scores it and the models beside it; all of it is gone after the block, however
        that ends.
        """
        self.watch.awaits("backend", self.arm.run.backend.kind)
        async with (
            self.backend.client(model, start) as client,
            self.backend.roles(roles) as beside,
            rollout_endpoints(client, model.name, self.log) as endpoints,
            training_rollouts(
                self.session,
                self.arm,
                algorithm,
                client,
                endpoints=endpoints,
                record=self.record,
                warnings=self.warnings,
            ) as rollouts,
        ):
            scores = self._scores(client, model, endpoints)
            clients = Clients(policy=client, **beside)
            ctx = self.ctx = run_context(
                self.session,
                self.arm,
                self.taken,
                record=self.record,
                attempt=self.attempt,
                model=model,
                data=data,
                clients=clients,
                roles=self.backend.used,
                hooks=self.hooks,
                log=self.log,
                evaluate=scores.evaluator,
                rollouts=rollouts,
                budget=self.budget,
                heartbeat=self.watch.beat,
                warn=self.warnings.append,
            )
            before, self.listening = self.listening, Listening(hooks=self.hooks, ctx=ctx)
            await before.followed()
            scores.evaluator.bind(ctx)
            async with scores.while_running(self.warnings, lambda: self.why_ended):
                yield client, scores, ctx

    async def outcome(self) -> RunResult:
        """How the phases ended; a failure of theirs is a result, an interruption passes."""
        try:
            with floating_point_in(self.log):
                return await self.watch.over(self.live)
        except (asyncio.CancelledError, KeyboardInterrupt) as exc:
            if asked_to_stop(exc):
                raise
            error = RunError("a plugin cancelled its own task, which nobody had asked for")
            error.__cause__ = exc
            return self.failed(error)
        except BudgetExceeded as exc:  # an algorithm that doesn't end by itself when it hears of it
            return attrs.evolve(self.unfinished("budget_stopped"), stop_reason=exc.message)
        except PLUGIN_FAILURES as exc:
            return self.failed(exc)

    def _scores(self, client: TrainingClient, model: ModelSpec, endpoints: RolloutEndpoints) -> ArmScores:
        scores = ArmScores.make(
            self.session,
            self.arm,
            self.benchmarks,
            model,
            client.renderer,
            record=self.record,
            log=self.log,
            endpoints=endpoints,
            watch=self.watch,
            scored=self.scored,
        )
        self.evaluator = scores.evaluator
        self.charges.append(scores.charges)
        return scores

    # --- the end ------------------------------------------------------------------------------------------------

    def failed(self, exc: BaseException) -> RunResult:
        """Log a failure, and make a result of it."""
        failure = failure_of(exc, "run")
        status: Status = "failed"
        if is_stall(exc):
            status, failure = "stalled", attrs.evolve(failure, place=self.watch.place)
        said = {"boundary": failure.boundary, "reason": failure.message, "status": status}
        self.log.error("run.failed", **said, exc_info=exc)
        self.lost = attrs.evolve(self.unfinished(status), failure=failure)
        return self.lost

    def cut_off(self) -> RunResult:
        """What an interruption leaves: a run that had failed already stays failed."""
        if self.lost is not None:
            return self.lost
        if self.session.down is not None:
            return attrs.evolve(self.unfinished("failed"), failure=failure_of(self.session.down))
        return attrs.evolve(self.unfinished("cancelled"), stop_reason=self.session.why_ended)

    @property
    def why_ended(self) -> str:
        """Why the work was cut off, in words that follow "was"."""
        return self.session.why_ended if self.watch.stalled is None else f"ended, since {self.watch.stalled}"

    def unfinished(self, status: Status) -> RunResult:
        """What a run came to that failed or was interrupted: weights, steps and checkpoints stay."""
        if self.trained is not None:
            return attrs.evolve(self.trained, status=status)
        try:
            result = so_far(self.record, status)
            if self.ctx is not None and getattr(self.ctx.clients.policy, "free", False):
                result = attrs.evolve(result, usage=attrs.evolve(result.usage, cost_usd=0.0))
            return self.backend.counted_in(result)
        except StoreError as error:
            self.warnings.append(f"how far the run came can't be read: {error.message}")
            return RunResult(status=status, run_id=run_id_of(self.arm))

    async def end(self, result: RunResult, seconds: float) -> RunResult:
        """Record how the arm ended and tell the listeners, who hear of it also where it can't be recorded."""
        try:
            ended = self.finish(result, seconds)
        except StoreError:
            told = without_secrets(self._arm_result(result, seconds), self.session.log_settings.redactor)
            await self.listening.ended(told)
            raise
        await self.listening.ended(ended)
        if not set(self.hooks.warnings) <= set(ended.warnings):
            ended = self.finish(result, seconds)  # with what a listener did wrong just now
        return ended.run or result

    async def end_cut_off(self, seconds: float) -> None:
        """The same for an arm that is cut off. Its record is written before anything is awaited; its listeners have a few seconds, or
        none where Ctrl-C came again.
        """
        if interruption().times > 1:
            self.finish(self.cut_off(), seconds)
            return
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self.end(self.cut_off(), seconds)
        except TimeoutError:
            told = {"run_id": run_id_of(self.arm), "seconds": LAST_WORD_SECONDS}
            self.session.log.warning("listeners.cut_off", **told)

    def finish(self, result: RunResult, seconds: float) -> ArmResult:
        """Write the result with every score made so far; nothing is awaited, so it works after Ctrl-C."""
        return self.session.keep(self.record, self._arm_result(result, seconds))

    def leave_behind(self, result: RunResult, seconds: float) -> None:
        """Record what this attempt came to, which another one is going to replace. Its listeners hear of it once that one has its own."""
        self.listening.left = self.session.keep_left_behind(self.record, self._arm_result(result, seconds))

    async def gone_back(self, retreat: Retreat) -> _ArmRun:
        """The attempt that goes on from the best checkpoint."""
        taken = await in_background(go_back, self.record, retreat, self.best, self.benchmarks)
        self.log.warning("run.went_back", step=taken.step, how=retreat.kind, attempt=self.record.attempt)
        run = _ArmRun.begin(self.session, self.arm, self.record, taken)
        run.listening = self.listening
        return run

    def _arm_result(self, result: RunResult, seconds: float) -> ArmResult:
        evaluations = tuple(self.scored if self.evaluator is None else self.evaluator.results)
        result = attrs.evolve(
            result,
            run_id=run_id_of(self.arm),
            evaluations=evaluations,
            best_checkpoint=self.best.place(self.record.directory),
            selected_checkpoint=self.selected,
        )
        return arm_result(
            self.session,
            self.arm,
            result,
            attempt=self.attempt,
            seconds=seconds,
            identity=None if self.rows is None else self.rows.identity,
            record=self.record,
            cut_off=left_of(
                self.taken.paid, (*self.taken.counted, *(charges.taken_over for charges in self.charges))
            ),
            warnings=(*self.warnings, *self.hooks.warnings),
        )
