"""The context of an attempt at a run: all that an algorithm is handed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evsys.types import ModelSpec, RunContext
from evsys_record.run_record import RunRecord
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.arm.pause import ArmPause
from evsys_runtime.experiment.lineage.restart_point import RestartPoint
from evsys_runtime.experiment.state.options import DRY_STEPS
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.training.checkpoints import ROLES, RunCheckpoints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evsys_runtime.data.dataset import MaterializedDataset
    from evsys_runtime.training.role_usage import RoleUsage

__all__ = ["run_context"]


def run_context(
    session: Session,
    arm: ArmConfig,
    taken: RestartPoint,
    *,
    record: RunRecord,
    attempt: int,
    model: ModelSpec,
    data: MaterializedDataset,
    roles: Mapping[str, RoleUsage],
    **parts: Any,
) -> RunContext:
    """The context of an attempt at an arm.

    Args:
        session: the arm's.
        arm: what is trained.
        taken: what the attempt takes up of earlier ones.
        record: the run's.
        attempt: its number.
        model: what is trained.
        data: the rows.
        roles: the accounts of the second models, which continue from the checkpoint to start from.
        **parts: the other fields of the context: clients, hooks, log, evaluator, rollouts, budget and signals.
    """
    restored = taken.restored
    for name, used in ({} if restored is None else restored.loop.get(ROLES, {})).items():
        if name in roles:
            roles[name].load(used)
    return RunContext(
        run_id=run_id_of(arm),
        arm=arm.name,
        repeat=arm.repeat,
        attempt=attempt,
        run_dir=record.directory,
        config=arm.tree,
        model=model,
        seeds=session.seeds(arm),
        data=data,
        record=record,
        checkpoints=RunCheckpoints(
            record.checkpoints,
            model,
            attempt=attempt,
            attempts=record.attempts,
            restored=restored,
            roles=roles,
        ),
        # If the training was over when that was saved, because a stop was asked for, it still is.
        stop=session.steering.flag(run_id_of(arm), None if restored is None else restored.loop.get("stop")),
        pause=ArmPause(session=session, run_id=run_id_of(arm), attempt=attempt),
        deterministic=arm.deterministic,
        max_steps=DRY_STEPS if session.options.dry else None,
        retreats=taken.retreats,
        **parts,
    )
