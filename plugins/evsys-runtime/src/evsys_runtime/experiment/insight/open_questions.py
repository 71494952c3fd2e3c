"""Hypotheses that experiments on record were begun for and gave no answer to, since they failed or were invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from evsys_record import PastExperiment, PastRun
from evsys_record.text import cut
from evsys_runtime.experiment.insight.failures import BAD

__all__ = ["Unanswered", "unanswered_hypotheses"]

MOST = 5
"""Listed hypotheses, the newest first."""

_PASSING = frozenset({"ServiceUnavailableError", "StalledError", "RateLimitError", "TimeoutError"})
"""Errors that may be gone at the next try."""

_LONGEST = 160


@attrs.frozen(kw_only=True)
class Unanswered:
    """A hypothesis, the experiment that was to test it, what stopped that, and whether a resume may get past it.

    `runs` are those that would have to be trained; None where the whole experiment has to be put right first.
    """

    past: PastExperiment
    why: str
    passing: bool
    runs: int | None


def unanswered_hypotheses(
    experiments: Sequence[PastExperiment], runs_of: Callable[[str], Sequence[PastRun]]
) -> Iterator[Unanswered]:
    """One of each hypothesis that no experiment with a valid comparison has.

    Args:
        experiments: all on record, the newest first.
        runs_of: the runs of one, by its id.
    """
    answered = {
        past.hypothesis
        for past in experiments
        if _answers(past) and past.retracted is None and not past.edited
    }
    seen: set[str | None] = {None, ""}
    for past in experiments:
        ended = past.status in (*BAD, "partial") or (past.status == "completed" and past.verdict is not None)
        if past.hypothesis in answered | seen or not ended or past.retracted is not None or past.edited:
            continue
        seen.add(past.hypothesis)
        yield _unanswered_entry(past, [run for run in runs_of(past.experiment_id) if run.status in BAD])
        if len(seen) - 2 >= MOST:
            return


def _unanswered_entry(past: PastExperiment, bad: Sequence[PastRun]) -> Unanswered:
    passing = bool(bad) and all(run.error_type in _PASSING or run.status == "stalled" for run in bad)
    message = next((run.failure for run in bad if run.failure), None) or past.reason or f"it is {past.status}"
    return Unanswered(
        past=past,
        why=cut(message.strip().partition("\n")[0], _LONGEST),
        passing=passing,
        runs=len(bad) if passing else None,
    )


def _answers(past: PastExperiment) -> bool:
    """Whether something was compared, however it came out."""
    return past.verdict not in (None, "INVALID") and any(each.effect is not None for each in past.comparisons)
