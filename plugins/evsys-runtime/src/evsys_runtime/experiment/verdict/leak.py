"""A benchmark trained on: above a share of its tasks nothing is decided."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from evsys.types import ArmResult, Conclusion

__all__ = ["MOST_LEAKED", "leak_words", "marked_leak"]

MOST_LEAKED = 0.1
"""Above this share of deciding tasks among the training rows the verdict is INVALID. Below it the rest decides as
well.
"""


def leak_words(benchmark: str, leaked: int, tasks: int) -> str | None:
    """Why a benchmark decides nothing; None if few enough of its tasks are among the training rows."""
    if leaked <= MOST_LEAKED * tasks:
        return None
    return (
        f"{leaked} of {tasks} tasks of {benchmark} are among the training rows, more than {MOST_LEAKED:.0%}"
    )


def marked_leak(conclusion: Conclusion, results: Sequence[ArmResult], *, allow: bool) -> Conclusion:
    """The conclusion, INVALID if too many of the tasks that decide were trained on; marked instead if that is allowed."""
    rest = conclusion.without_flagged
    if rest is None or conclusion.verdict is None:
        return conclusion
    scorings = [e for result in results for e in result.evaluations if e.benchmark == rest.benchmark]
    tasks = {task for e in scorings if e.model is None for task in e.task_rewards}
    why = leak_words(rest.benchmark, len(rest.tasks), len(tasks))
    if why is None:
        return conclusion
    extra = {**conclusion.extra, "leaked": len(rest.tasks) / len(tasks)}
    if allow:
        warning = f"{why}; metadata.allow_leak lets them decide"
        return attrs.evolve(conclusion, extra=extra, warnings=(*conclusion.warnings, warning))
    return attrs.evolve(conclusion, verdict="INVALID", reason=why, settle=None, settling=None, extra=extra)
