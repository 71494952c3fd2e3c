"""Whether an arm continues with its next stage, and which runs of an experiment are still to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evsys.types import ArmResult
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.stages.forgetting import stop_reason

__all__ = ["skip_reason", "still_to_come"]


def skip_reason(
    plan: Plan,
    arm: ArmConfig,
    results: Mapping[str, ArmResult],
    benchmarks: Sequence[BoundBenchmark],
    *,
    dry: bool = False,
) -> str | None:
    """Why a run can't begin, now that the one that it follows has ended: that isn't complete, or too little is left.

    Args:
        plan: the run's.
        arm: the run.
        results: those that there are, by run; that of the one before it among them.
        benchmarks: the entries that show what earlier stages have left.
        dry: nothing is concluded, so nothing ends early.
    """
    if arm.after is None:
        return None
    before = results[arm.after]
    stopped = None if dry else stop_reason(plan, arm, results, benchmarks)
    if before.status == "completed" or stopped is not None:
        return stopped
    return f"it continues from {before.run_id}, which is {before.status}"


def still_to_come(
    plan: Plan, ended: Mapping[str, ArmResult], benchmarks: Sequence[BoundBenchmark]
) -> list[str]:
    """The runs that an experiment isn't through with, in the order of the plan: a stage that is never begun is none of them.

    Args:
        plan: its plan.
        ended: the results that can't be made any more complete, by run.
        benchmarks: the entries that show what earlier stages have left.
    """
    never: set[str] = set()
    found: list[str] = []
    for arm in plan.arms:  # stages come in their order
        if arm.run_id in ended:
            continue
        if arm.after in never or (
            arm.after in ended and skip_reason(plan, arm, ended, benchmarks) is not None
        ):
            never.add(arm.run_id)
        else:
            found.append(arm.run_id)
    return found
