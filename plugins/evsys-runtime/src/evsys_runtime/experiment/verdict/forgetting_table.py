"""The matrix of what an arm forgets, as a page shows it."""

from __future__ import annotations

from collections.abc import Iterator

from evsys.types import Forgetting
from evsys_runtime.experiment.verdict.tables import Table, markdown_table, number, signed_text

__all__ = ["forgetting_lines", "forgetting_table"]


def forgetting_table(found: Forgetting) -> Table:
    """A line a benchmark, a column a stage; the score right after a benchmark's own stage is in brackets. `change`
    is the difference of the last score and that one, with its interval. A number that isn't of all seeds says of
    how many: the remaining ones may be the ones that forgot least. Records from before there were differences have
    `kept`, the ratio.
    """
    rows = []
    for place, benchmark in enumerate(found.benchmarks):
        cells = [_cell(found, place, column) for column in range(len(found.stages))]
        in_the_end = "" if found.own[place] == len(found.stages) - 1 else _left_in_the_end(found, place)
        rows.append((f"{benchmark}.{found.metrics[place]}", *cells, in_the_end))
    title = found.arm + (f", {found.seeds} seeds" if found.seeds > 1 else "")
    return Table(
        title=title, columns=(*found.stages, "change" if found.changes else "kept"), rows=tuple(rows)
    )


def _left_in_the_end(found: Forgetting, place: int) -> str:
    if not found.changes:
        return f"{number(found.retention[place][-1])}{_seed_count_note(found, place, -1)}"
    change = found.changes[place][-1]
    if change is None:
        return number(None)
    low, high = found.change_low[place][-1], found.change_high[place][-1]
    interval = "" if low is None and high is None else f" [{number(low)}, {number(high)}]"
    return f"{signed_text(change)}{interval}{_seed_count_note(found, place, -1)}"


def _cell(found: Forgetting, place: int, column: int) -> str:
    text = f"{number(found.values[place][column])}{_seed_count_note(found, place, column)}"
    return f"({text})" if column == found.own[place] else text


def _seed_count_note(found: Forgetting, place: int, column: int) -> str:
    count = found.scored[place][column] if found.scored else found.seeds
    return f" of {count} seed{'s' * (count > 1)}" if 0 < count < found.seeds else ""


def forgetting_lines(found: Forgetting) -> list[str]:
    """The matrix in Markdown, with what it says in words."""
    lines = ["Retention after each stage:", "", *markdown_table(forgetting_table(found))]
    notes = [
        *_intervals(found),
        *_undecided_tests(found),
        *(f"- ended early: {text}" for text in found.stopped),
    ]
    return [*lines, "", *notes] if notes else lines


def _undecided_tests(found: Forgetting) -> Iterator[str]:
    """The tests that could not show whether more was lost than allowed."""
    for test in found.tests:
        if test.outcome != "undecided":
            continue
        seen = f"changed by {signed_text(test.change)} [{number(test.low)}, {number(test.high)}]"
        why = seen if test.reason is None else test.reason
        yield f"- unknown: {test.run} after {test.stage}, {test.benchmark}.{test.metric} against {test.limit}: {why}"


def _intervals(found: Forgetting) -> Iterator[str]:
    """The score of each benchmark after its own stage and in the end, with their intervals."""
    end = len(found.stages) - 1
    for place, benchmark in enumerate(found.benchmarks):
        own = found.own[place]
        if own == end or found.values[place][own] is None or found.values[place][end] is None:
            continue
        then, now = (_with_interval(found, place, column) for column in (own, end))
        yield f"- {benchmark}.{found.metrics[place]}: {then} after {found.stages[own]}, {now} after {found.stages[end]}"


def _with_interval(found: Forgetting, place: int, column: int) -> str:
    value, low, high = (of[place][column] for of in (found.values, found.low, found.high))
    text = number(value) if low is None else f"{number(value)} [{number(low)}, {number(high)}]"
    return f"{text}{_seed_count_note(found, place, column)}"
