"""Collapse of a training, and how the run continues: from an earlier checkpoint, as an attempt of its own."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = [
    "GOES_BACK",
    "HEALTHY",
    "NOT_FINITE",
    "ON_COLLAPSE",
    "OTHER_SAMPLES",
    "Retreat",
    "RetreatKind",
]

RetreatKind = Literal["rollback", "branch"]
"""Both resume from the best checkpoint, as an attempt of its own. `rollback` leaves what collapsed as it is; `branch` scores it
first, on every entry that isn't kept for the test, so that both sides can be compared.
"""

GOES_BACK: tuple[str, ...] = ("rollback", "branch")
"""Values of `on_collapse` that resume from an earlier checkpoint."""

ON_COLLAPSE: tuple[str, ...] = ("stop", *GOES_BACK, "warn")

HEALTHY = "collapse/healthy_steps"
"""Metric of a run that collapsed: how many of its steps were done before the trouble began."""

NOT_FINITE = "collapse/not_finite"
"""Metric of a run that collapsed because a number isn't finite: its last weights can't be scored."""

OTHER_SAMPLES = 1 << 32
"""Added to the index of a sampling seed for each time a run went back, so that it draws other samples. No run makes so many calls."""


@attrs.frozen(kw_only=True)
class Retreat:
    """Resume from the best checkpoint of at most `before` optimiser steps, or from the start if there is none."""

    kind: RetreatKind
    before: int
