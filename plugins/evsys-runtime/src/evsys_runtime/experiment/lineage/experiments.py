"""Earlier experiments in the same folder, looked up in the index, never in all their files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.evaluations import evaluations_on_record
from evsys_record.index import Index
from evsys_record.looks import Ledger, entries_on_record
from evsys_record.questions import ScoredEntry

__all__ = ["Earlier", "count_looks", "earlier_index", "ledger_of", "open_on_demand", "query_index"]

type Earlier = Callable[[], Index | None]
"""The index of `earlier_index`, made when it is first needed."""


@contextmanager
def earlier_index(
    experiments: Path, own: str | None, tell: Callable[[str], None], *, wanted: str = "earlier experiments"
) -> Iterator[Index | None]:
    """The index of a folder of experiments, up to date; None if there are no others, or it can't be read, which is
    reported.

    Args:
        experiments: the folder.
        own: the experiment that asks; None for one that isn't on record yet.
        tell: gets why it can't be read.
        wanted: the purpose, as the beginning of that line.
    """
    if not any(path.parent.name != own for path in experiments.glob("*/experiment.json")):
        yield None
        return
    with Index(experiments) as index:
        try:
            index.refresh()
        except (StoreError, sqlite3.Error) as exc:
            tell(f"{wanted} can't be looked up: {exc}")
            yield None
            return
        yield index


@contextmanager
def open_on_demand(experiments: Path, own: str | None, tell: Callable[[str], None]) -> Iterator[Earlier]:
    """`earlier_index`, opened when someone asks for it, and once: mostly an experiment knows by itself what it wants to know."""
    with ExitStack() as opened:
        yield cache(lambda: opened.enter_context(earlier_index(experiments, own, tell)))


def query_index(
    index: Index | None,
    query: str,
    parameters: Sequence[object],
    tell: Callable[[str], None],
    *,
    wanted: str = "earlier experiments",
) -> list[tuple[Any, ...]]:
    """The rows of a query; none without an index, or if it can't be queried, which is reported and costs no result."""
    try:
        return [] if index is None else index.rows(query, parameters)
    except (StoreError, sqlite3.Error) as exc:
        tell(f"{wanted} can't be looked up: {exc}")
        return []


def ledger_of(index: Index | None, experiments: Path, tell: Callable[[str], None]) -> Ledger:
    """The looks at all questions; none if they can't be read, which is reported.

    Args:
        index: of the experiments on record; None if there are none, and only the ledger is left.
        experiments: the folder of all experiments.
        tell: gets why they can't be read.
    """
    try:
        return Ledger.left(experiments) if index is None else Ledger.of(index)
    except (StoreError, sqlite3.Error) as exc:
        tell(f"earlier looks at this question can't be counted: {exc}")
        return Ledger(asked=())


def count_looks(
    earlier: Earlier,
    own: str,
    entries: Sequence[ScoredEntry],
    tell: Callable[[str], None],
    *,
    evaluations: Path,
) -> dict[str, int]:
    """How often other experiments and evaluations evaluated the tasks of each entry, by its name; entries without
    any are left out.

    Starting weights count once an experiment, as they are evaluated once for all its arms.

    Args:
        earlier: the index of the experiments on record, asked for if there are entries.
        own: the experiment that asks.
        entries: whose tasks are looked for, under any name.
        tell: gets why they can't be looked up.
        evaluations: the folder of evaluations.
    """
    query = (
        "SELECT COUNT(*) FROM (SELECT DISTINCT l.experiment, CASE WHEN l.step = 0 THEN '' ELSE l.place END, l.step "
        "FROM look l JOIN experiment e ON e.id = l.experiment WHERE l.hash = ? AND e.folder != ? AND NOT e.dry)"
    )
    index = earlier() if entries else None
    found: dict[str, int] = {}
    for entry in entries:
        for key in _hashes_of(entry, index, tell):
            ((count,),) = query_index(index, query, (key, own), tell) or [(0,)]
            found[entry.name] = found.get(entry.name, 0) + count
    for evaluation in evaluations_on_record(evaluations) if entries else ():
        for entry in entries:
            if any(one.is_same(entry) for one in evaluation.entries):
                found[entry.name] = found.get(entry.name, 0) + 1
    return {name: count for name, count in found.items() if count}


def _hashes_of(entry: ScoredEntry, index: Index | None, tell: Callable[[str], None]) -> set[str]:
    """The hashes under which the tasks of an entry are on record."""
    try:
        known = () if index is None else entries_on_record(index)
        return {one.entry_hash for _, one in known if one.entry_hash is not None and one.is_same(entry)}
    except (StoreError, sqlite3.Error) as exc:
        tell(f"earlier scorings of test tasks can't be looked up: {exc}")
        return set()
