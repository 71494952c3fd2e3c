"""Past experiments and runs as tables that fit the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evsys_cli.output import on_terminal, table_lines, terminal_width
from evsys_runtime.experiment.verdict.tables import number, signed

if TYPE_CHECKING:
    from evsys_runtime.record.past import History, PastExperiment, PastRun

__all__ = ["history_lines", "interval"]

_GAP = 2
_LEAST = 2
"""Columns that a table has on the narrowest terminal."""

_EXPERIMENT = ("status", "verdict", "effect", "runs", "metric", "cost", "tags")
_RUN = ("status", "score", "steps", "algorithm", "model", "cost", "failure")
_LONGEST_FAILURE = 60


def history_lines(found: History) -> Iterator[str]:
    """A line each, with as many columns as there is room for; whole in files and pipes, to be searched."""
    width = terminal_width() if on_terminal() else sys.maxsize
    if found.experiments:
        rows = [(each.experiment_id, *_experiment_cells(each)) for each in found.experiments]
        yield from _fitting("experiment", _EXPERIMENT, rows, width)
    else:
        rows = [(f"{each.experiment_id}/{each.run_id}", *_run_cells(each)) for each in found.runs]
        yield from _fitting("run", _RUN, rows, width)
    problems = [(each.experiment_id, each.problem) for each in found.experiments]
    problems += [(f"{each.experiment_id}/{each.run_id}", each.problem) for each in found.runs]
    yield from (f"{name} can't be read: {problem}" for name, problem in problems if problem is not None)
    listed = len(found.experiments) + len(found.runs)
    if listed < found.total:
        yield f"{listed} of {found.total}; --limit 0 lists all"


def _experiment_cells(past: PastExperiment) -> tuple[str, ...]:
    """What the table says of an experiment, a text a column."""
    effect = "" if past.effect is None else f"{signed(past.effect)}{interval(past.low, past.high)}"
    scores = f" {number(past.before)} -> {number(past.after)}" if past.after is not None else ""
    return (
        past.status,
        past.verdict or "",
        effect,
        str(past.runs) if past.runs == past.runs_completed else f"{past.runs_completed} of {past.runs}",
        f"{past.metric or ''}{scores}",
        _money(past.usage.cost_usd if past.usage else None),
        ", ".join(past.tags),
    )


def _run_cells(past: PastRun) -> tuple[str, ...]:
    failure = (past.failure or "").partition("\n")[0]
    return (
        past.status,
        "" if past.score is None else f"{number(past.score)}{interval(past.low, past.high)}",
        "" if past.steps is None else str(past.steps),
        (past.algorithm or "").rpartition("/")[2],
        past.model or "",
        _money(past.usage.cost_usd if past.usage else None),
        failure if len(failure) <= _LONGEST_FAILURE else f"{failure[: _LONGEST_FAILURE - 2]}..",
    )


def interval(low: float | None, high: float | None) -> str:
    """The interval behind a number; nothing where there is none."""
    return "" if low is None or high is None else f" [{number(low)}, {number(high)}]"


def _money(cost: float | None) -> str:
    return f"${cost:.2f}" if cost else ""


def _fitting(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """The table with the first columns that fit; one that is empty in every row is left out."""
    used = [place for place in range(len(columns)) if any(row[place + 1] for row in rows)]
    while len(used) > _LEAST and _width(title, columns, rows, used) > width:
        used.pop()
    kept = [(row[0], *(row[place + 1] for place in used)) for row in rows]
    return table_lines(title, [columns[place] for place in used], kept, width=width)


def _width(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], used: Sequence[int]) -> int:
    labels = max(len(title), *(len(row[0]) + _GAP for row in rows))
    cells = (max(len(columns[place]), *(len(row[place + 1]) for row in rows)) + _GAP for place in used)
    return labels + sum(cells)
