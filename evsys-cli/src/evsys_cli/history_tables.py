"""Past experiments and runs as tables that fit the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evsys_cli.output import on_terminal, table_lines, table_width, terminal_width
from evsys_record.marks import with_marks
from evsys_record.text import status_words
from evsys_runtime.experiment.verdict.tables import number, signed_text

if TYPE_CHECKING:
    from evsys_record import History, PastExperiment, PastRun
    from evsys_record.past import NearArm, PastEvaluation

__all__ = ["history_lines", "interval"]

_LEAST = 2
"""Columns that a table has on the narrowest terminal."""

_EXPERIMENT = ("status", "verdict", "effect", "runs", "metric", "cost", "tags")
_RUN = ("status", "score", "steps", "algorithm", "model", "cost", "failure")
_EVALUATION = ("status", "model", "scores", "final tests")
_LONGEST_FAILURE = 60
_MOST_DIFFERENCES = 8


def history_lines(found: History) -> Iterator[str]:
    """A line each, with as many columns as there is room for; whole in files and pipes, to be searched."""
    width = terminal_width() if on_terminal() else sys.maxsize
    if found.near:
        yield from _near_lines(found.near)
    elif found.experiments:
        rows = [(each.experiment_id, *_experiment_cells(each)) for each in found.experiments]
        yield from _fitting("experiment", _EXPERIMENT, rows, width)
    elif found.runs:
        rows = [(f"{each.experiment_id}/{each.run_id}", *_run_cells(each)) for each in found.runs]
        yield from _fitting("run", _RUN, rows, width)
    if found.evaluations:
        cells = [(each.evaluation_id, *_evaluation_cells(each)) for each in found.evaluations]
        yield from _fitting("evaluation", _EVALUATION, cells, width)
    problems = [(each.experiment_id, each.problem) for each in found.experiments]
    problems += [(f"{each.experiment_id}/{each.run_id}", each.problem) for each in found.runs]
    yield from (f"{name} can't be read: {problem}" for name, problem in problems if problem is not None)
    listed = len(found.experiments) + len(found.runs) + len(found.near)
    if listed < found.total:
        yield f"{listed} of {found.total}; --limit 0 lists all"


def _near_lines(found: Sequence[NearArm]) -> Iterator[str]:
    """Each with its outcome and its differences; values are the config's, then those on record."""
    several = len({each.near_to for each in found}) > 1
    for each in found:
        whose = f" (like {each.near_to})" if several else ""
        effect = (
            ""
            if each.effect is None
            else f", effect {signed_text(each.effect)}{interval(each.low, each.high)}"
        )
        score = "" if each.score is None else f", {each.metric or 'score'} {number(each.score)}"
        yield f"{each.experiment_id}/{each.arm}{whose}: {each.outcome or each.status or 'no runs'}{effect}{score}"
        yield from (f"  {mark.says}" for mark in each.marks)
        another = [part for part in ("model", "data", "algorithm") if part not in each.same]
        if another:
            yield f"  another {', another '.join(another)}"
        shown = each.differences[:_MOST_DIFFERENCES]
        yield from (
            f"  {difference.path} {difference.one or 'not set'}, there {difference.other or 'not set'}"
            for difference in shown
        )
        if len(shown) < len(each.differences):
            yield f"  and {len(each.differences) - len(shown)} other keys; --json has all"
        if not each.differences:
            yield "  the same config"


def _experiment_cells(past: PastExperiment) -> tuple[str, ...]:
    """The row of an experiment, one text per column."""
    effect = "" if past.effect is None else f"{signed_text(past.effect)}{interval(past.low, past.high)}"
    scores = f" {number(past.before)} -> {number(past.after)}" if past.after is not None else ""
    return (
        status_words(past.status, past.failed, 1),
        _verdict(past),
        effect,
        str(past.runs) if past.runs == past.runs_completed else f"{past.runs_completed} of {past.runs}",
        f"{past.metric or ''}{scores}",
        _money(past.usage.cost_usd if past.usage else None),
        ", ".join(past.tags),
    )


def _verdict(past: PastExperiment) -> str:
    """With its subject and marks, and the verdict that it had before it was resumed."""
    replaced = past.superseded and past.superseded[-1] != past.verdict
    before = (f"was {past.superseded[-1]}",) if replaced else ()
    return with_marks(past.verdict, past.subject, past.marks, *before)


def _evaluation_cells(past: PastEvaluation) -> tuple[str, ...]:
    scores = ", ".join(f"{name} {number(value)}" for name, value in past.scores.items())
    return past.status, past.model, scores, ", ".join(past.tests)


def _run_cells(past: PastRun) -> tuple[str, ...]:
    failure = (past.failure or "").partition("\n")[0]
    return (
        past.status,
        "" if past.score is None else f"{number(past.score)}{interval(past.low, past.high)}",
        _steps(past),
        (past.algorithm or "").rpartition("/")[2],
        past.model or "",
        _money(past.usage.cost_usd if past.usage else None),
        failure if len(failure) <= _LONGEST_FAILURE else f"{failure[: _LONGEST_FAILURE - 2]}..",
    )


def _steps(past: PastRun) -> str:
    """The steps of a run, after that of its selected checkpoint if it isn't the last."""
    if past.steps is None:
        return ""
    early = past.selected_step not in (None, past.steps)
    return f"{past.selected_step} of {past.steps}" if early else str(past.steps)


def interval(low: float | None, high: float | None) -> str:
    """The interval behind a number; nothing where there is none."""
    return "" if low is None or high is None else f" [{number(low)}, {number(high)}]"


def _money(cost: float | None) -> str:
    return f"${cost:.2f}" if cost else ""


def _fitting(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """The table with the first columns that fit; empty columns are omitted."""
    used = [place for place in range(len(columns)) if any(row[place + 1] for row in rows)]
    while True:
        names = [columns[place] for place in used]
        kept = [(row[0], *(row[place + 1] for place in used)) for row in rows]
        if len(used) <= _LEAST or table_width(title, names, kept) <= width:
            return table_lines(title, names, kept, width=width)
        used.pop()
