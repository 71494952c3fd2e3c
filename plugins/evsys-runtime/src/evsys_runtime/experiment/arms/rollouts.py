"""The training rollouts of one arm, for algorithms that learn from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from evsys import structure
from evsys.errors import EvsysError
from evsys.protocols import Algorithm, TrainingClient
from evsys_runtime.config.model import AgentConfig, PluginSpec
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.agents import resolve_agent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.session import Session, run_id_of
from evsys_runtime.record.run_record import RunRecord
from evsys_runtime.serving.rollouts import RolloutEndpoints

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
    """The `ctx.rollouts` of a run, for as long as the block goes on; None for an algorithm whose rows are no tasks.

    Who acts is the run's `agent`, or what the algorithm's own params say: `agent_import_path`, `environment` and
    `system_prompt` are read from them where they are there. After the block all rollouts are on record; where it failed and
    they can't be, `warnings` says so.
    """
    if getattr(algorithm, "shape", "chat") != "task":
        yield None
        return
    params = getattr(algorithm, "config", None)
    import_path = getattr(params, "agent_import_path", None)
    agent = arm.run.agent if import_path is None else AgentConfig(import_path=import_path)
    registry = session.plan.registry
    rollouts = TrainingRollouts(
        renderer=client.renderer,
        agent=resolve_agent(agent, registry),
        registry=registry,
        seeds=session.seeds(arm),
        record=record,
        charge=None if (budget := session.budgets.get(run_id_of(arm))) is None else budget.charge,
        environment=_environment(getattr(params, "environment", None)),
        system_prompt=getattr(params, "system_prompt", None),
        endpoints=endpoints,
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


def _environment(named: Any) -> Any:
    """An environment as engines take it: a name, or `kind` with `params`."""
    if not isinstance(named, Mapping):
        return named
    return structure(PluginSpec, named, path="$.run.algorithm.params.environment")
