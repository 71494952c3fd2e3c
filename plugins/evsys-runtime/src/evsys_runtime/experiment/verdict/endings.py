"""Runs that a listener, or a request, ended before their last step, in words."""

from __future__ import annotations

from evsys.types import ExperimentResult
from evsys_record.scorings import THROUGH

__all__ = ["early_ends"]


def early_ends(result: ExperimentResult) -> list[str]:
    """A line for each run ended early: at which step, and why. Empty for a dry run, in which all are."""
    return [
        f"{arm.run_id} ended at step {arm.run.steps}: {arm.run.stop_reason}"
        for arm in result.arms
        if not result.dry and arm.run is not None and arm.status in THROUGH and arm.run.stop_reason
    ]
