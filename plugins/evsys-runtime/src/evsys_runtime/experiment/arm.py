"""One arm from its data to its scores. Phases follow each other; a failure belongs to the phase and plugin it came from,
and what was trained and scored before it stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs

from evsys import HookManager
from evsys.errors import PLUGIN_FAILURES, EvsysError, RunError, StoreError, boundary
from evsys.protocols import Algorithm, Backend, Log, TrainingClient
from evsys.types import (
    ArmResult,
    Checkpoint,
    Clients,
    LoraSpec,
    ModelSpec,
    RunContext,
    RunResult,
    Status,
)
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.sources import source_hash
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.experiment.arm_scores import ArmScores
from evsys_runtime.experiment.background import in_background
from evsys_runtime.experiment.contracts import prepared, told, trained
from evsys_runtime.experiment.earlier import EarlierRun
from evsys_runtime.experiment.identity import arm_identity
from evsys_runtime.experiment.secrets import refuse_secret_rows
from evsys_runtime.experiment.session import DRY_STEPS, Session, run_id_of
from evsys_runtime.experiment.so_far import so_far
from evsys_runtime.experiment.stages import first_difference, order_of, stages_of
from evsys_runtime.record.hashing import digest
from evsys_runtime.record.keep_rollouts import KeepRollouts
from evsys_runtime.record.logging import context
from evsys_runtime.record.run_record import RunRecord
from evsys_runtime.training.checkpoints import RunCheckpoints, find_checkpoint
from evsys_runtime.training.floating_point import floating_point_in

__all__ = ["run_arm"]

TEARDOWN_SECONDS = 60.0


async def run_arm(session: Session, arm: ArmConfig) -> RunResult:
    """Train and score one arm at one repeat, and record it. Never raises for a failure of the arm itself."""
    run_id = run_id_of(arm)
    record = session.record.run(
        run_id,
        hypothesis=session.plan.experiment.metadata.hypothesis,
        facts={
            "arm": arm.name,
            "repeat": arm.repeat,
            "dry": session.options.dry,
            "deterministic": arm.deterministic,
        },
        keep_rollouts=KeepRollouts() if session.options.dry else _keep_rollouts(session),
        log_settings=session.log_settings,
    )
    attempt = record.start_attempt()
    run = _ArmRun(session=session, arm=arm, record=record, log=record.logger(arm=arm.name), attempt=attempt.n)
    started = time.monotonic()
    try:
        with context(arm=arm.name), floating_point_in(run.log):
            result = await run.outcome()
            return await run.end(result, time.monotonic() - started)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if run_id not in session.results:
            run.finish(run.cut_off(), time.monotonic() - started)
        raise


def _asked_to_stop(exc: BaseException) -> bool:
    """True for Ctrl-C and for a cancellation from outside; False for a `CancelledError` that a plugin raised."""
    task = asyncio.current_task()
    return isinstance(exc, KeyboardInterrupt) or task is None or task.cancelling() > 0


def _keep_rollouts(session: Session) -> KeepRollouts | None:
    """What a `local_logger` among the callbacks asks for."""
    for spec in session.plan.experiment.callbacks:
        if spec.kind.rpartition("/")[2] == "local_logger":
            kept = spec.params.get("keep_rollouts")
            return KeepRollouts(**kept) if isinstance(kept, Mapping) else None
    return None


@attrs.define(kw_only=True, eq=False)
class _ArmRun:
    """The state of one attempt: what each phase has made so far."""

    session: Session
    arm: ArmConfig
    record: RunRecord
    log: Log
    attempt: int
    identity: str = ""
    warnings: list[str] = attrs.field(factory=list)
    hooks: HookManager = attrs.field(factory=HookManager)
    ctx: RunContext | None = None
    evaluator: Evaluator | None = None
    trained: RunResult | None = None
    lost: RunResult | None = None
    restore: Checkpoint | None = None
    earlier: EarlierRun | None = None
    benchmarks: tuple[BoundBenchmark, ...] = ()

    async def live(self) -> RunResult:
        """All phases; the backend is torn down whatever happens."""
        arm, registry = self.arm, self.session.plan.registry
        self.hooks = self.session.listeners(self.log)
        self.benchmarks = self.session.benchmarks_of(arm)
        algorithm = registry.build("algorithm", arm.run.algorithm.kind, resolve(arm.run.algorithm.params))
        model = self._model_spec(algorithm)
        self.restore = find_checkpoint(model, self.session.plan.project_root)
        data = await self._load_data(algorithm)
        backend = registry.build("backend", arm.run.backend.kind, resolve(arm.run.backend.params))
        self._mark_simulated(backend, model)
        async with self._client(backend, model) as client:
            scores = self._scores(client, model)
            ctx = self.ctx = self._context(client, model, data, scores.evaluator)
            scores.evaluator.bind(ctx)
            async with scores.while_running(self.warnings):
                rows, dropped = len(data), dict(data.dropped)
                await self.hooks.emit("evsys_data_prepared", ctx=ctx, rows=rows, dropped=dropped)
                await scores.untrained(client)
                with boundary("algorithm", arm.run.algorithm.kind, run_id_of(arm)):
                    self.trained = await trained(algorithm, ctx, arm.run.algorithm.kind)
                await asyncio.to_thread(self._note_stages, data)
                await scores.trained(client, self.trained.steps)
                await scores.models()
        return self.trained

    async def outcome(self) -> RunResult:
        """How the phases ended; a failure of theirs is a result, an interruption passes."""
        try:
            return await self.live()
        except (asyncio.CancelledError, KeyboardInterrupt) as exc:
            if _asked_to_stop(exc):
                raise
            error = RunError("a plugin cancelled its own task, which nobody had asked for")
            error.__cause__ = exc
            return await self.failed(error)
        except PLUGIN_FAILURES as exc:
            return await self.failed(exc)

    # --- phases -------------------------------------------------------------------------------------------------

    async def _load_data(self, algorithm: Algorithm) -> MaterializedDataset:
        session, arm = self.session, self.arm
        data = await in_background(
            load_dataset,
            arm.run.data,
            shape=getattr(algorithm, "shape", "chat"),
            project_root=session.plan.project_root,
            registry=session.plan.registry,
            pull=session.pull,
            spool_dir=self.record.directory / "data",
            seed=session.seeds(arm)("data"),
            resolve=resolve,
        )
        self.warnings += data.warnings
        versions = self._plugin_versions()
        self.identity = arm_identity(
            arm.tree,
            seed=session.seeds(arm)("run"),
            data_hash=data.fingerprint,
            weights=None if self.restore is None else dict(self.restore.state),
            benchmark_hashes={b.name: b.benchmark_hash or "" for b in self.benchmarks},
            plugin_versions=versions,
        )
        self.record.note(
            identity=self.identity,
            data={
                "fingerprint": data.fingerprint,
                "rows": len(data),
                "dropped": dict(data.dropped),
                "lineage": list(data.lineage),
            },
            plugins=versions,
            seed=session.seeds(arm).base_seed,
        )
        await self._look_back()
        await asyncio.to_thread(refuse_secret_rows, data.lines(), session.log_settings.redactor)
        await asyncio.to_thread(self.record.write_training_data, data, session.workspace.cache("datasets"))
        return data

    async def _look_back(self) -> None:
        """Say so where this very run was there before, so that whoever doesn't want it again can stop it."""
        if self.session.options.dry:
            return
        self.earlier = await self.session.earlier.find(self.identity)
        if self.earlier is not None:
            where, run_id = self.earlier.experiment_id, run_id_of(self.arm)
            text = f"{run_id} was run before in {where} (use it: evsys show {where} {self.earlier.run_id})"
            # Not in the run's own log: what is in the same run twice has the same numbers there.
            self.session.log.warning("run.repeated", what=text)
            self.record.note(
                run_before={"experiment_id": self.earlier.experiment_id, "run_id": self.earlier.run_id}
            )

    def _note_stages(self, data: MaterializedDataset) -> None:
        """Record what the run came to at each stage, and where it departs from what it came to before."""
        stages = stages_of(self.record, data.fingerprint)
        self.record.note(stages=stages, order=order_of(self.record, len(data)))
        if self.earlier is None:
            return
        try:
            before = self.earlier.facts().get("stages") or {}
        except StoreError as error:
            self.warnings.append(f"what this run came to before can't be read: {error.message}")
            return
        differs = first_difference(before, stages)
        if differs is None:
            return
        text = f"it is the same run as {self.earlier.experiment_id} {self.earlier.run_id}, yet differs, first in {differs}"
        if self.arm.deterministic:
            self.warnings.append(text)
        self.session.log.info("run.diverged", run_id=run_id_of(self.arm), what=text)

    def _plugin_versions(self) -> dict[str, str]:
        """The version of each plugin that makes the result; of the project's own code the hash of its source."""
        run, registry = self.arm.run, self.session.plan.registry
        named = [("algorithm", run.algorithm.kind), ("backend", run.backend.kind)]
        named += [("transform", spec.kind) for spec in run.data.transforms]
        entries = [registry.find(kind, name) for kind, name in named]
        return {
            f"{entry.kind}:{entry.qualified}": source_hash(registry.get(entry.kind, entry.qualified))
            if entry.local
            else str(entry.version)
            for entry in entries
        }

    def _model_spec(self, algorithm: Algorithm) -> ModelSpec:
        config = self.arm.run.model
        lora = getattr(algorithm, "lora", None)
        return ModelSpec(
            name=config.name,
            lora=lora() if callable(lora) else LoraSpec(),
            renderer=config.renderer,
            init_from_checkpoint=config.init_from_checkpoint,
            load_checkpoint_path=config.load_checkpoint_path,
        )

    def _mark_simulated(self, backend: Backend, model: ModelSpec) -> None:
        """Keep it with the result where a backend only imitates a model, so that no number passes for the model's."""
        if getattr(backend, "simulated", False):
            kind = self.arm.run.backend.kind
            self.session.simulated.add(kind)
            self.warnings.append(
                f"backend {kind!r} only imitates a model: what it scores says nothing about {model.name}"
            )

    @asynccontextmanager
    async def _client(self, backend: Backend, model: ModelSpec) -> AsyncIterator[TrainingClient]:
        name = self.arm.run.backend.kind
        client: TrainingClient | None = None
        try:
            with boundary("backend", name, run_id_of(self.arm)):
                seed = self.session.seeds(self.arm)("model")
                more = told(backend, deterministic=self.arm.deterministic)
                client = await prepared(
                    backend.prepare(model, self.record.directory, seed, self.restore, **more), name
                )
            self.record.note(backend=dict(getattr(client, "facts", None) or {}))
            yield client
        except BaseException:
            try:
                await self._tear_down(backend, client)
            except EvsysError as exc:  # what went wrong first is what to tell
                self.warnings.append(exc.message)
                self.log.warning("teardown.failed", reason=exc.message, exc_info=exc)
            raise
        await self._tear_down(backend, client)

    async def _tear_down(self, backend: Backend, client: TrainingClient | None) -> None:
        with boundary("backend", self.arm.run.backend.kind, run_id_of(self.arm)):
            async with asyncio.timeout(TEARDOWN_SECONDS):
                await backend.teardown(client)

    def _scores(self, client: TrainingClient, model: ModelSpec) -> ArmScores:
        scores = ArmScores.make(
            self.session,
            self.arm,
            self.benchmarks,
            model,
            client.renderer,
            record=self.record,
            log=self.log,
        )
        self.evaluator = scores.evaluator
        return scores

    def _context(
        self, client: TrainingClient, model: ModelSpec, data: MaterializedDataset, evaluator: Evaluator
    ) -> RunContext:
        session, arm = self.session, self.arm
        seeds = session.seeds(arm)
        return RunContext(
            run_id=run_id_of(arm),
            arm=arm.name,
            repeat=arm.repeat,
            attempt=self.attempt,
            run_dir=self.record.directory,
            config=arm.tree,
            model=model,
            seeds=seeds,
            data=data,
            clients=Clients(policy=client),
            record=self.record,
            checkpoints=RunCheckpoints(
                self.record.checkpoints, model, attempt=self.attempt, attempts=self.record.attempts
            ),
            hooks=self.hooks,
            log=self.log,
            evaluate=evaluator,
            deterministic=arm.deterministic,
            max_steps=DRY_STEPS if session.options.dry else None,
            warn=self.warnings.append,
        )

    # --- the end ------------------------------------------------------------------------------------------------

    async def failed(self, exc: BaseException) -> RunResult:
        """Log a failure, tell the listeners, and make a result of it."""
        failure = failure_of(exc, "run")
        self.log.error("run.failed", boundary=failure.boundary, reason=failure.message, exc_info=exc)
        self.lost = attrs.evolve(self.unfinished("failed"), failure=failure)
        if self.ctx is not None:
            await self.hooks.emit("evsys_run_failed", ctx=self.ctx, failure=failure)
        return self.lost

    def cut_off(self) -> RunResult:
        """What an interruption leaves: a run that had failed already stays failed."""
        if self.lost is not None:
            return self.lost
        return attrs.evolve(self.unfinished("cancelled"), stop_reason=self.session.why_ended)

    def unfinished(self, status: Status) -> RunResult:
        """What a run came to that failed or was interrupted: weights, steps and checkpoints stay."""
        if self.trained is not None:
            return attrs.evolve(self.trained, status=status)
        try:
            result = so_far(self.record, status)
            free = self.ctx is not None and getattr(self.ctx.clients.policy, "free", False)
            return attrs.evolve(result, usage=attrs.evolve(result.usage, cost_usd=0.0)) if free else result
        except StoreError as error:
            self.warnings.append(f"how far the run came can't be read: {error.message}")
            return RunResult(status=status, run_id=run_id_of(self.arm))

    async def end(self, result: RunResult, seconds: float) -> RunResult:
        """Record how the arm ended and tell the listeners."""
        arm_result = self.finish(result, seconds)
        if self.ctx is not None:
            await self.hooks.emit("evsys_run_finished", ctx=self.ctx, result=arm_result)
            if not set(self.hooks.warnings) <= set(arm_result.warnings):
                arm_result = self.finish(result, seconds)  # with what a listener did wrong just now
        return arm_result.run or result

    def finish(self, result: RunResult, seconds: float) -> ArmResult:
        """Write the result with every score made so far; nothing is awaited, so it works after Ctrl-C."""
        evaluations = tuple(self.evaluator.results) if self.evaluator is not None else ()
        result = attrs.evolve(result, run_id=run_id_of(self.arm), evaluations=evaluations)
        used = sum((e.usage + e.judged for e in result.evaluations), result.usage)
        arm_result = ArmResult(
            run_id=result.run_id,
            arm=self.arm.name,
            repeat=self.arm.repeat,
            seed=self.session.seeds(self.arm).base_seed,
            status=result.status,
            identity=self.identity or digest(self.arm.digest),
            run=result,
            evaluations=result.evaluations,
            failure=result.failure,
            attempt=self.attempt,
            seconds=seconds,
            # Scorings run beside the training and each other: their seconds add up to more than passed here.
            usage=attrs.evolve(used, seconds=min(used.seconds, seconds)),
            run_dir=str(self.record.directory),
            warnings=tuple(dict.fromkeys((*result.warnings, *self.warnings, *self.hooks.warnings))),
        )
        return self.session.keep(self.record, arm_result)
