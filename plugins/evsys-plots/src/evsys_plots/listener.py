"""Draws the plots of each experiment at its end. It listens wherever this distribution is installed, so it imports nothing
heavy until then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys.types import ExperimentResult

__all__ = ["evsys_experiment_finished"]

SWITCH = "EVSYS_PLOTS"
"""An environment variable; `off` leaves the plots to `evsys plot`."""


async def evsys_experiment_finished(result: ExperimentResult) -> None:
    """Write `plots/` alongside the conclusion, in a thread. A failure becomes a warning of the result, and ends
    nothing. Without a record nothing is drawn.

    Raises:
        StoreError: some plots couldn't be drawn or written; the others are there.
    """
    if result.dry or os.environ.get(SWITCH, "").casefold() == "off":
        return
    directory = Path(result.directory)
    if not (directory / "experiment.json").is_file():
        return
    from evsys.errors import StoreError
    from evsys_plots.draw import draw
    from evsys_runtime import in_background

    drawn = await in_background(draw, directory)
    if drawn.problems:
        raise StoreError(f"these plots couldn't be drawn: {'; '.join(drawn.problems)}")
