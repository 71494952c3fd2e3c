"""The phases of an attempt at an arm: load its rows, prepare a model, train it, select a checkpoint, evaluate that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from evsys.errors import StoreError, boundary
from evsys.protocols import Algorithm, TrainingClient
from evsys.types import (
    Checkpoint,
    Clients,
    ModelSpec,
    RunContext,
    RunResult,
)
from evsys_runtime.background import in_background
from evsys_runtime.config.asked_model import asked_model
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.experiment.arm.attempt import ArmAttempt
from evsys_runtime.experiment.arm.best_checkpoint import BestCheckpoint
from evsys_runtime.experiment.arm.checkpoint_selection import select_checkpoint
from evsys_runtime.experiment.arm.contracts import train
from evsys_runtime.experiment.arm.data import ArmData
from evsys_runtime.experiment.arm.evaluations import ArmEvaluations
from evsys_runtime.experiment.arm.listeners import Listening
from evsys_runtime.experiment.arm.result import (
    budget_limited_result,
    stopped_result,
)
from evsys_runtime.experiment.arm.reused import taken_from_record
from evsys_runtime.experiment.arm.rollback import way_back
from evsys_runtime.experiment.arm.rollouts import training_rollouts
from evsys_runtime.experiment.arm.run_context import run_context
from evsys_runtime.experiment.arm.score_only import taken_as_trained
from evsys_runtime.experiment.lineage.restart_point import note_trained
from evsys_runtime.experiment.search.search_scores import register_judge
from evsys_runtime.experiment.stages.chain import start_of
from evsys_runtime.experiment.state.listeners import run_listeners
from evsys_runtime.experiment.state.roles import ArmRole, roles_of
from evsys_runtime.experiment.state.session import run_id_of
from evsys_runtime.experiment.state.starting_weights import untrained_keys
from evsys_runtime.serving.rollouts import RolloutEndpoints, rollout_endpoints

__all__ = ["train_and_evaluate"]


async def train_and_evaluate(attempt: ArmAttempt) -> RunResult:
    """All phases; the backend is torn down in any case."""
    arm, registry = attempt.arm, attempt.session.plan.registry
    attempt.taken = await in_background(taken_as_trained, attempt.session, arm, attempt.taken)
    algorithm = registry.build("algorithm", arm.run.algorithm.kind, resolve(arm.run.algorithm.params))
    begins = await in_background(start_of, attempt.session, arm, asked_model(arm.run.model, algorithm))
    attempt.restore = begins.checkpoint
    await _listen(attempt)
    roles = roles_of(arm, algorithm, attempt.session.plan.project_root)
    rows = attempt.rows = _arm_data(attempt)
    data = await rows.load(algorithm, begins, roles)
    if (reused := taken_from_record(attempt, rows.reused)) is not None:
        return reused
    gone = await _make_up(attempt, algorithm, begins.model, data)
    start = attempt.taken.restored or attempt.restore
    if attempt.trained is not None:  # scoring alone needs no one alongside the model
        roles = ()
    prepared = partial(_prepare, attempt, algorithm, begins.model, data)
    async with prepared(start, roles=roles) as (client, scores, ctx):
        await attempt.hooks.emit("evsys_data_prepared", ctx=ctx, rows=len(data), dropped=dict(data.dropped))
        for step, why in gone.items():
            await scores.evaluator.give_up(step, why)
        if attempt.taken.checkpoint is None:
            await scores.start_evaluations(client, 0)
        attempt.trained = await _train(attempt, algorithm, ctx)
        if not attempt.session.options.dry:
            attempt.retreat = way_back(algorithm, attempt.trained, attempt.taken.retreats)
        attempt.enters("evaluation", "evaluation", "scoring")
        await in_background(rows.note_stages, data)
        if attempt.retreat is not None:
            await scores.finish_before_rollback(client, attempt.trained.steps, attempt.retreat.kind)
            return attempt.trained
        chosen = await _select(attempt, client, scores, attempt.trained)
        if chosen is None:
            await scores.results(client, attempt.trained.steps, attempt.trained)
    if chosen is not None:
        attempt.scored = scores.evaluator.results
        async with prepared(chosen) as (client, scores, _):
            await scores.results(client, chosen.step)
    stopped = None if attempt.budget is None else attempt.budget.stopped
    result = budget_limited_result(attempt.trained, scores.evaluator.results, stopped)
    return stopped_result(result, attempt.session.steering.stop_of(run_id_of(arm)))


async def _listen(attempt: ArmAttempt) -> None:
    """Register the listeners of the attempt, and take over what earlier attempts have scored and trained."""
    session, arm = attempt.session, attempt.arm
    attempt.hooks = run_listeners(session, attempt.log, attempt.watch.dump)
    attempt.hooks.register(attempt.watch, "watchdog")
    if attempt.budget is not None:
        attempt.hooks.register(attempt.budget, "budget")
    register_judge(session, arm, attempt.hooks)
    attempt.benchmarks = session.benchmarks_of(arm)
    chosen_by = session.selection_of(arm)
    attempt.best = await in_background(
        BestCheckpoint.from_record, attempt.record, session.plan.success, attempt.benchmarks, chosen_by
    )
    attempt.hooks.register(attempt.best, "best checkpoint")
    attempt.scored, attempt.trained = attempt.taken.scored, attempt.taken.trained
    attempt.warnings += attempt.taken.odd


def _arm_data(attempt: ArmAttempt) -> ArmData:
    """The rows of the arm, still to be loaded."""
    attempt.enters("data", "data", attempt.arm.run.data.source_kind or "data")
    return ArmData(
        session=attempt.session,
        arm=attempt.arm,
        record=attempt.record,
        watch=attempt.watch,
        benchmarks=attempt.benchmarks,
        warnings=attempt.warnings,
        known_as=attempt.taken.identity,
        begun=attempt.taken.step > 0 or attempt.taken.trained is not None,
    )


async def _train(attempt: ArmAttempt, algorithm: Algorithm, ctx: RunContext) -> RunResult:
    """Train, unless an earlier attempt had trained to the end."""
    if attempt.trained is not None:
        await attempt.hooks.emit(
            "evsys_run_started", ctx=ctx, total_steps=attempt.trained.steps, estimate=None
        )
        return attempt.trained
    kind = attempt.arm.run.algorithm.kind
    attempt.enters("training", "algorithm", kind)
    with boundary("algorithm", kind, run_id_of(attempt.arm)):
        result = attempt.backend.add_role_usage(await train(algorithm, ctx, kind))
    await in_background(note_trained, attempt.record, result)
    return result


async def _make_up(
    attempt: ArmAttempt, algorithm: Algorithm, model: ModelSpec, data: MaterializedDataset
) -> Mapping[int, str]:
    """Make up the scores that earlier attempts lack; why that can't be done, by step."""
    gone = {}
    for step in _missing_evaluation_steps(attempt):
        try:
            start = attempt.restore if step == 0 else attempt.taken.snapshot(step)
        except StoreError as error:
            gone[step] = error.message
            continue
        async with _prepare(attempt, algorithm, model, data, start) as (client, scores, _):
            await scores.start_evaluations(client, step)
            await scores.evaluator.drain()
            attempt.scored = scores.evaluator.results
    return gone


async def _select(
    attempt: ArmAttempt, client: TrainingClient, scores: ArmEvaluations, trained: RunResult
) -> Checkpoint | None:
    """Select the checkpoint that counts; None if its weights are those that the client has."""
    if attempt.session.selection_of(attempt.arm).checkpoint == "last":
        return None
    await scores.to_select(client, trained.steps)
    place = attempt.record.directory
    attempt.selected = await in_background(select_checkpoint, attempt.best, trained, scores.evaluator, place)
    if attempt.selected is None or attempt.selected.step == trained.steps:
        return None
    attempt.log.info("checkpoint.selected", step=attempt.selected.step, by=attempt.selected.by)
    return attempt.best.selected


def _missing_evaluation_steps(attempt: ArmAttempt) -> list[int]:
    """Steps before the one from which this attempt continues whose scores are still to be made."""
    shared = attempt.session.untrained
    wanted = any(shared.known(key) is None for key in untrained_keys(attempt.session, attempt.arm))
    return attempt.taken.missing_evaluation_steps(attempt.benchmarks, untrained=wanted)


@asynccontextmanager
async def _prepare(
    attempt: ArmAttempt,
    algorithm: Algorithm,
    model: ModelSpec,
    data: MaterializedDataset,
    start: Checkpoint | None,
    *,
    roles: Sequence[ArmRole] = (),
) -> AsyncIterator[tuple[TrainingClient, ArmEvaluations, RunContext]]:
    """A loaded model, with what scores it and the models alongside it; all of it is gone after the block, however
    that ends.
    """
    attempt.enters("model", "backend", attempt.arm.run.backend.kind)
    async with (
        attempt.backend.client(model, start) as client,
        attempt.backend.roles(roles) as beside,
        rollout_endpoints(client, model.name, attempt.log) as endpoints,
        training_rollouts(
            attempt.session,
            attempt.arm,
            algorithm,
            client,
            endpoints=endpoints,
            record=attempt.record,
            warnings=attempt.warnings,
        ) as rollouts,
    ):
        scores = _scores(attempt, client, model, endpoints)
        clients = Clients(policy=attempt.backend.metered(client), **beside)
        ctx = attempt.ctx = run_context(
            attempt.session,
            attempt.arm,
            attempt.taken,
            record=attempt.record,
            attempt=attempt.number,
            model=model,
            data=data,
            clients=clients,
            roles=attempt.backend.used,
            hooks=attempt.hooks,
            log=attempt.log,
            evaluate=scores.evaluator,
            rollouts=rollouts,
            budget=attempt.budget,
            heartbeat=attempt.watch.beat,
            warn=attempt.warnings.append,
        )
        before, attempt.listening = attempt.listening, Listening(hooks=attempt.hooks, ctx=ctx)
        await before.stop_listening()
        scores.evaluator.bind(ctx)
        async with scores.cancel_on_exit(attempt.warnings, lambda: attempt.why_ended):
            yield client, scores, ctx


def _scores(
    attempt: ArmAttempt, client: TrainingClient, model: ModelSpec, endpoints: RolloutEndpoints
) -> ArmEvaluations:
    scores = ArmEvaluations.make(
        attempt.session,
        attempt.arm,
        attempt.benchmarks,
        model,
        client.renderer,
        record=attempt.record,
        log=attempt.log,
        endpoints=endpoints,
        watch=attempt.watch,
        scored=attempt.scored,
    )
    attempt.evaluator = scores.evaluator
    attempt.charges.append(scores.charges)
    return scores
