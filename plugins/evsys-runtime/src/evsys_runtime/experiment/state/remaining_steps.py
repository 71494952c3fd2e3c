"""How many optimiser steps a run still makes, as far as that is known before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.experiment.state.options import DRY_STEPS

if TYPE_CHECKING:
    from evsys_runtime.config.plan import ArmConfig
    from evsys_runtime.experiment.state.session import Session

__all__ = ["steps_left"]


def steps_left(session: Session, arm: ArmConfig) -> int | None:
    """The steps to come of a run, from where it is taken up; None where its file doesn't say how many it makes."""
    if arm.weights_of is not None:  # it is only scored
        return 0
    steps = DRY_STEPS if session.options.dry else known_steps(arm.run)
    taken = session.restart_points.get(arm.run_id)
    return None if steps is None else max(0, steps - (0 if taken is None else taken.step))
