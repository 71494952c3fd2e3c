"""The benchmark entries that a run is evaluated on: one reserved for the confirmation is used by nothing else."""

from __future__ import annotations

from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.plan import ArmConfig, Plan

__all__ = ["deciding_entry", "is_scored"]


def deciding_entry(plan: Plan) -> str | None:
    """The label of the entry on which a winner is confirmed; None where none is."""
    confirm, success = plan.experiment.confirm, plan.success
    if confirm is None or success is None:
        return None
    return confirm.benchmark or success.benchmark


def is_scored(plan: Plan, arm: ArmConfig, entry: BenchmarkConfig) -> bool:
    """Whether a run is scored on an entry.

    Runs that confirm a winner are on the one that decides, and on those scored alongside the training, which may
    have a part in how it goes.
    """
    deciding = deciding_entry(plan)
    if deciding is None:
        return True
    if arm.purpose == "confirm":
        return entry.label == deciding or entry.run_every is not None
    return entry.label != deciding or (plan.success is not None and plan.success.benchmark == deciding)
