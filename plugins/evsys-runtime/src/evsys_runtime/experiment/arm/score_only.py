"""Runs that train nothing: they score the weights that another run ended with, or untrained ones, with seeds of their own."""

from __future__ import annotations

import attrs

from evsys.errors import RunError
from evsys.types import RunResult
from evsys_record.encoding import as_tree
from evsys_record.result_files import run_folder
from evsys_record.run_record import RunRecord
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.lineage.restart_point import RestartPoint
from evsys_runtime.experiment.stages.chain import resulting_weights
from evsys_runtime.experiment.state.session import Session

__all__ = ["taken_as_trained"]


def taken_as_trained(session: Session, arm: ArmConfig, taken: RestartPoint) -> RestartPoint:
    """The restart point of an attempt at such a run: the weights, as if it had trained them. Other runs keep
    theirs.

    Blocking.

    Raises:
        RunError: the other run kept no weights.
        StoreError: they can't be read.
    """
    if arm.weights_of is None:
        return taken
    if arm.weights_of == BASE_MODEL:
        return attrs.evolve(taken, trained=RunResult(status="completed", run_id=arm.run_id))
    result = session.results[arm.weights_of]
    record = session.record.find_run(arm.weights_of)
    if record is not None and result.reused is not None:
        record = RunRecord(run_folder(record.directory, as_tree(result)))
    entry = None if record is None else resulting_weights(record, result)
    if entry is None:
        raise RunError(
            f"{arm.run_id} scores the weights that {arm.weights_of} ended with, and that run kept none",
            hint="an algorithm saves them with ctx.checkpoints.save",
        )
    entry.verify()
    trained = RunResult(status="completed", run_id=arm.run_id, steps=entry.step)
    # What was scored on the way there is the other run's.
    return attrs.evolve(taken, trained=trained, checkpoint=entry, branched=entry.step)
