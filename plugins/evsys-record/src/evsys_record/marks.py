"""Marks: the reasons to be careful with a past conclusion, in the same words wherever the experiment is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evsys_record.past import Mark, MarkKind, PastExperiment

if TYPE_CHECKING:
    from evsys.types import Conclusion, LookSeries

__all__ = [
    "DISQUALIFYING",
    "DOUBTS",
    "HACKING_SUSPECTED",
    "QUESTION_CHANGED",
    "concluded_labels",
    "disqualifying",
    "doubts_of",
    "labels",
    "marks_of",
    "reused_label",
    "series_marks",
    "with_marks",
]


QUESTION_CHANGED = "question changed after results"
"""The label of a conclusion whose question was another one before results were known."""

HACKING_SUSPECTED = "reward_hacking_suspected"
"""The key of `extra` in a conclusion that names the runs whose guard raised an alarm."""

DOUBTS = "doubts"
"""The key of `extra` in a conclusion that has its own marks, as mappings."""

DISQUALIFYING: frozenset[MarkKind] = frozenset(
    {"retracted", "rests_on_retracted", "edited", "audit_differs", "dry", "simulated", "leaked"}
)
"""Marks of experiments that nothing can be recommended from."""


def marks_of(past: PastExperiment) -> tuple[Mark, ...]:
    """The marks that follow from the fields of an experiment, the most serious first."""
    return tuple(_marks(past))


def concluded_labels(conclusion: Conclusion) -> tuple[str, ...]:
    """The labels of the marks that a conclusion has when it is made; others follow from what happens to it later."""
    extra, series = conclusion.extra, conclusion.looks
    found = {
        "simulated": bool(extra.get("simulated_by")),
        f"{extra.get('leaked') or 0.0:.0%} leaked": bool(extra.get("leaked")),
        "reward hacking suspected": bool(extra.get(HACKING_SUSPECTED)),
        QUESTION_CHANGED: bool(conclusion.question_changed),
    }
    found |= dict.fromkeys(labels(doubts_of(extra)), True)
    if series is not None and series.tested:
        found[f"look {series.number}"] = series.number > 1
        found |= dict.fromkeys(labels(series_marks(series)), True)
    if conclusion.reused:
        found[reused_label(dict.fromkeys(conclusion.reused.values()))] = True
    return tuple(label for label, there in found.items() if there)


def reused_label(experiments: Iterable[str]) -> str:
    """The label of a conclusion about runs that these experiments made."""
    return f"reuses runs of {', '.join(experiments)}"


def doubts_of(extra: Mapping[str, Any]) -> tuple[Mark, ...]:
    """The marks in the `extra` of a conclusion: what its graders and weights leave open."""
    return tuple(
        Mark(kind=each["kind"], label=str(each["label"]), says=str(each["says"]))
        for each in extra.get(DOUBTS) or ()
    )


def series_marks(series: LookSeries) -> tuple[Mark, ...]:
    """The marks of a conclusion for what its level isn't corrected for."""
    return tuple(
        _correction_marks(
            similar=series.similar,
            other_tasks=series.other_tasks,
            unasked=series.unasked,
            elsewhere=series.elsewhere,
            repeated=series.repeated,
            rebuilt=series.rebuilt,
        )
    )


def _correction_marks(
    *, similar: int, other_tasks: int, unasked: int, elsewhere: int, repeated: int, rebuilt: bool
) -> Iterator[Mark]:
    """A mark for each kind of earlier results that a level isn't corrected for."""
    if similar:
        label = f"{_looks_text(similar)} at similar questions"
        says = f"{label} came before, on the same tasks by another metric, claim, baseline or lever: the level isn't corrected for them"
        yield Mark(kind="similar_looks", label=label, says=says)
    if other_tasks:
        label = f"{_looks_text(other_tasks)} on other tasks"
        says = f"{label} came before, at the same question: the level isn't corrected for them"
        yield Mark(kind="other_tasks", label=label, says=says)
    if unasked:
        label = f"{unasked} run{'s' * (unasked != 1)} scored without a look"
        says = f"{label} came before, on the same tasks: what was chosen by those scores has seen them"
        yield Mark(kind="unasked", label=label, says=says)
    if repeated:
        label = f"{repeated} run{'s' * (repeated != 1)} scored as in earlier looks"
        says = f"{label}, the same on each task: a run that was chosen for its scores has no other ones now"
        yield Mark(kind="repeated_runs", label=label, says=says)
    if elsewhere:
        label = f"{_looks_text(elsewhere)} in other places"
        says = f"{label} came before, at the same question, which the ledger of looks doesn't have: the level isn't corrected for them"
        yield Mark(kind="elsewhere", label=label, says=says)
    if rebuilt:
        says = "the ledger of looks was missing once and was made again from the experiments on record: looks of deleted experiments aren't counted"
        yield Mark(kind="ledger_rebuilt", label="ledger of looks rebuilt", says=says)


def _looks_text(looks: int) -> str:
    return f"{looks} look{'s' * (looks != 1)}"


def disqualifying(marks: Iterable[Mark]) -> frozenset[MarkKind]:
    """The kinds of those marks that keep an experiment from being recommended or counted; empty if none does."""
    return frozenset(mark.kind for mark in marks) & DISQUALIFYING


def labels(marks: Iterable[Mark]) -> tuple[str, ...]:
    """The labels of marks, in order."""
    return tuple(mark.label for mark in marks)


def with_marks(text: str | None, subject: str | None, marks: Iterable[Mark] = (), *more: str) -> str:
    """A verdict, or a name, with the subject and the marks behind it, such as `SUPPORTED (this checkpoint, simulated)`.

    Args:
        text: what they are put behind; None is empty.
        subject: what the verdict is about, `checkpoint` or `recipe`; None if nothing was decided.
        marks: those of the experiment.
        more: further remarks.
    """
    about = [] if subject is None else [f"this {subject}"]
    remarks = [*about, *labels(marks), *more]
    return f"{text or ''}{f' ({", ".join(remarks)})' if remarks else ''}".strip()


def _marks(past: PastExperiment) -> Iterator[Mark]:
    if past.retracted is not None:
        yield Mark(kind="retracted", label="retracted", says=f"it was retracted: {past.retracted}")
    if past.rests_on:
        says = f"it rests on retracted experiments: {', '.join(past.rests_on)}"
        yield Mark(kind="rests_on_retracted", label="rests on retracted", says=says)
    if past.edited:
        says = "its conclusion.json was edited after the run wrote it"
        yield Mark(kind="edited", label="edited", says=says)
    if past.audit_differs:
        says = f"its audit found {past.audit_differs} difference{'s' * (past.audit_differs != 1)}"
        yield Mark(kind="audit_differs", label="audit: differs", says=says)
    if past.dry:
        yield Mark(kind="dry", label="dry run", says="it is a dry run: a few steps and tasks only")
    if past.simulated_by:
        says = f"the model is simulated by {', '.join(past.simulated_by)}"
        yield Mark(kind="simulated", label="simulated", says=says)
    if past.leaked_share:
        share = f"{past.leaked_share:.0%}" if past.leaked_share >= 0.01 else "under 1%"
        says = f"{share} of the scored tasks are among the training rows"
        yield Mark(kind="leaked", label=f"{share} leaked", says=says)
    if past.hacking_suspected:
        says = f"the reward and the guard of {', '.join(past.hacking_suspected)} parted ways in training"
        yield Mark(kind="reward_hacking", label="reward hacking suspected", says=says)
    if past.question_changed:
        says = f"the question changed after results were known: {', '.join(past.question_changed)}"
        yield Mark(kind="question_changed", label=QUESTION_CHANGED, says=says)
    yield from past.doubts
    yield from _looks(past)
    if past.reuses:
        says = f"runs of it were made by {', '.join(past.reuses)}, and reused"
        yield Mark(kind="reused", label=reused_label(past.reuses), says=says)


def _looks(past: PastExperiment) -> Iterator[Mark]:
    """The marks that follow from the looks before it."""
    if past.look is not None and past.look.of > 1:
        place = f"look {past.look.number} of {past.look.of}"
        yield Mark(kind="look", label=place, says=f"it is {place} at its question, which share one level")
    yield from _correction_marks(
        similar=past.similar_looks,
        other_tasks=past.looks_on_other_tasks,
        unasked=past.runs_without_a_look,
        elsewhere=past.looks_elsewhere,
        repeated=past.repeated_runs,
        rebuilt=past.ledger_rebuilt,
    )
