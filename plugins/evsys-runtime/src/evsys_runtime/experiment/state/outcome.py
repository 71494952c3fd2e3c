"""How an experiment ended: its status and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys.types import ArmResult, Conclusion, Status
from evsys_record.scorings import THROUGH
from evsys_runtime.experiment.supervision.interrupts import interruption

__all__ = ["failed_parts", "outcome_of"]

FAILED = 1
BUDGET = 5

_CODES = {"config": 2, "plugin": 3, "data": 4}
"""Exit codes of experiments in which nothing ran because of one kind of fault."""


def outcome_of(
    arms: Sequence[ArmResult],
    conclusion: Conclusion,
    *,
    planned: int,
    ended_by: BaseException | None = None,
    unpaid: bool | None = None,
    stopped: bool = False,
) -> tuple[Status, int]:
    """The status and exit code. An experiment is `completed` when an arm is; the code is 1 unless all is well, see
    `failed_parts`.

    Args:
        arms: those reached.
        conclusion: what follows from them.
        planned: how many there were to be.
        ended_by: what ended the experiment as a whole before all arms were through.
        stopped: someone asked for the end of all its arms.
        unpaid: where a search came to its end without an arm, whether it is that none was paid for; else None.
    """
    if isinstance(ended_by, EvsysError):
        return "failed", ended_by.exit_code
    if isinstance(ended_by, PLUGIN_FAILURES):
        return "failed", FAILED
    if ended_by is not None:
        return "cancelled", interruption().exit_code
    if unpaid is not None:
        return ("budget_stopped", BUDGET) if unpaid else ("failed", FAILED)
    completed = [arm for arm in arms if arm.status in THROUGH]
    if arms and not completed:
        return _all_failed(arms)
    scored = all(evaluation.fully_scored for arm in arms for evaluation in arm.evaluations)
    if len(completed) < planned or not scored:
        if any(arm.status == "budget_stopped" for arm in arms):
            return "budget_stopped", BUDGET
        return ("invalid" if conclusion.verdict == "INVALID" else "completed"), FAILED
    if conclusion.verdict == "INVALID":
        return "invalid", FAILED
    early = [arm for arm in arms if arm.status == "stopped"]
    return ("stopped" if early and (stopped or early == completed) else "completed"), 0


def failed_parts(arms: Iterable[ArmResult]) -> tuple[str, ...]:
    """The runs that aren't complete, and scorings that failed: as `<run>/<benchmark>`, of an API model `<benchmark>@<model>`."""
    failed: list[str] = []
    for arm in arms:
        if arm.status not in THROUGH:
            failed.append(arm.run_id)
            continue
        failed += [
            f"{arm.run_id}/{one.benchmark}" if one.model is None else f"{one.benchmark}@{one.model}"
            for one in arm.evaluations
            if one.status != "completed"
        ]
    return tuple(dict.fromkeys(failed))


def _all_failed(arms: Sequence[ArmResult]) -> tuple[Status, int]:
    statuses = {arm.status for arm in arms if arm.status != "skipped"}
    if statuses == {"budget_stopped"}:
        return "budget_stopped", BUDGET
    boundaries = {arm.failure.boundary for arm in arms if arm.failure is not None}
    # What never came back isn't wrong by that.
    one_fault = len(boundaries) == 1 and "stalled" not in statuses
    code = _CODES.get(boundaries.pop(), FAILED) if one_fault else FAILED
    return (statuses.pop() if len(statuses) == 1 else "failed"), code
