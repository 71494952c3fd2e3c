"""The training rollouts of one arm, for algorithms that learn from them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evsys.errors import EvsysError
from evsys.optional import declared
from evsys.protocols import Algorithm, TrainingClient
from evsys_record.run_record import RunRecord
from evsys_runtime.config.harness import harness_of
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.agents import resolve_agent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.arm.pause import ArmPause
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.serving.rollouts import RolloutEndpoints
from evsys_runtime.training.rollout_params import RolloutParams

__all__ = ["training_rollouts"]


@asynccontextmanager
async def training_rollouts(
    session: Session,
    arm: ArmConfig,
    algorithm: Algorithm,
    client: TrainingClient,
    *,
    endpoints: RolloutEndpoints,
    record: RunRecord,
    warnings: list[str],
) -> AsyncIterator[TrainingRollouts | None]:
    """The `ctx.rollouts` of a run, for as long as the block continues; None for an algorithm whose rows are not
    tasks.

    They are made in the run's harness, see `harness_of`. After the block all rollouts are on record; if recording
    fails after a failure of the block, `warnings` says so.
    """
    if declared(algorithm, "shape", "chat") != "task":
        yield None
        return
    harness = harness_of(arm.run, algorithm)
    params = getattr(algorithm, "config", None)
    registry = session.plan.registry
    rollouts = TrainingRollouts(
        renderer=client.renderer,
        agent=resolve_agent(harness.agent, registry),
        registry=registry,
        seeds=session.seeds(arm),
        record=record,
        charge=None if (budget := session.budgets.get(run_id_of(arm))) is None else budget.charge,
        environment=harness.environment,
        system_prompt=resolve(harness.system_prompt),
        endpoints=endpoints,
        max_retries=params.max_retries if isinstance(params, RolloutParams) else 0,
        pause=ArmPause(session=session, run_id=run_id_of(arm), attempt=record.attempt),
    )
    watch = session.watched[run_id_of(arm)]
    watch.allow(lambda: rollouts.patience)
    try:
        yield rollouts
    except BaseException:
        try:
            await rollouts.close()
        except EvsysError as error:  # what ended the block is what to tell
            warnings.append(error.message)
        raise
    await rollouts.close()
