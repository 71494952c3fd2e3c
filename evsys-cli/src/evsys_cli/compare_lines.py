"""Two experiments or runs side by side, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_cli.history_tables import interval
from evsys_cli.output import table_lines
from evsys_cli.plan_lines import count_words, money_words, time_words
from evsys_record.marks import with_marks
from evsys_runtime.experiment.verdict.tables import number, signed_text

if TYPE_CHECKING:
    from evsys_record.differing import Difference
    from evsys_runtime.experiment.estimate.results import ComparedMetric, ComparedSide, Comparing

__all__ = ["compare_lines"]


def compare_lines(found: Comparing, *, width: int) -> Iterator[str]:
    """Config, metrics, cost.

    Args:
        found: what was compared.
        width: of the terminal.
    """
    sides = [("one", found.one), ("other", found.other)]
    columns = ("status", "verdict", "steps", "tokens trained", "time", "cost")
    rows = [(f"{label}: {side.name}", *_took(side)) for label, side in sides]
    yield from table_lines("", columns, rows, width=width)
    yield ""
    yield from _configs(found)
    yield ""
    if found.metrics:
        several = len({row.arms for row in found.metrics}) > 1
        cells = [(_label(row, several=several), *_cells(row)) for row in found.metrics]
        yield from table_lines("metric, other - one", ("one", "other", "difference", "p"), cells, width=width)
        yield from _notes(found)
    else:
        yield "no metric of a finished run is on both sides"


def _took(side: ComparedSide) -> tuple[str, ...]:
    return (
        side.status or "",
        with_marks(side.verdict, side.subject, side.marks),
        count_words(side.steps),
        count_words(side.trained_tokens),
        time_words(side.seconds),
        money_words(side.cost_usd),
    )


def _configs(found: Comparing) -> Iterator[str]:
    """The keys that differ, those that do so in every arm once."""
    shared = set(found.arms[0].differences) if found.arms else set()
    for arms in found.arms[1:]:
        shared &= set(arms.differences)
    first = found.arms[0].differences if found.arms else ()
    common = [difference for difference in first if difference in shared]
    yield from (_difference_text(difference) for difference in common)
    for arms in found.arms:
        name = arms.one if arms.one == arms.other else f"{arms.one} -> {arms.other}"
        yield from (f"{name}: {_difference_text(each)}" for each in arms.differences if each not in shared)
    if not any(arms.differences for arms in found.arms):
        whole = not (found.only_one or found.only_other)
        yield f"no key of the config differs{'' if whole else ' of the arms that both have'}"
    for label, names in (("one", found.only_one), ("other", found.only_other)):
        if names:
            yield f"only in {label}: {', '.join(names)}"


def _difference_text(difference: Difference) -> str:
    return f"{difference.path}: {difference.one or 'not set'} -> {difference.other or 'not set'}"


def _label(row: ComparedMetric, *, several: bool) -> str:
    return f"{row.arms}: {row.benchmark}.{row.metric}" if several else f"{row.benchmark}.{row.metric}"


def _cells(row: ComparedMetric) -> tuple[str, ...]:
    known = row.effect is not None
    return (
        number(row.one),
        number(row.other),
        f"{signed_text(row.effect)}{interval(row.low, row.high)}" if known else "",
        f"{row.p_value:.2g}" if row.p_value is not None else "",
    )


def _notes(found: Comparing) -> Iterator[str]:
    """By what test and on how many tasks, and why something isn't compared; each once."""
    notes: dict[str, list[str]] = {}
    for row in found.metrics:
        missing = f", {row.n_missing} on one side only left out" if row.n_missing else ""
        said = row.reason or f"{row.method}, {row.n_tasks} tasks{missing}"
        notes.setdefault(said, []).append(f"{row.benchmark}.{row.metric}")
    for said, names in notes.items():
        whose = "" if len(notes) == 1 else f"{', '.join(dict.fromkeys(names))}: "
        yield f"  {whose}{said}"
