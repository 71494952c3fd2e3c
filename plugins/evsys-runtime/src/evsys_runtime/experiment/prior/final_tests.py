"""The final tests of a project: tasks that an experiment declared as `split: test`, recognized under any name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from evsys.errors import StoreError
from evsys_record.questions import ScoredEntry
from evsys_runtime.config.plan import Plan
from evsys_runtime.data.task_contents import task_contents

if TYPE_CHECKING:
    from evsys_record.index import Index
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark

__all__ = ["entry_of", "final_test_warnings", "find_final_tests", "planned_tests"]


def entry_of(bound: BoundBenchmark) -> ScoredEntry:
    """A bound entry as records have it."""
    return ScoredEntry(
        name=bound.name,
        split=bound.split,
        entry_hash=bound.benchmark_hash,
        contents=task_contents(bound.tasks),
    )


def find_final_tests(
    entries: Sequence[ScoredEntry], index: Index | None, tell: Callable[[str], None]
) -> Mapping[str, str]:
    """The `val` entries whose tasks are those of a final test, with that test in words.

    A final test is a `test` entry of the same list, or one that an experiment on record declared.

    Args:
        entries: of one experiment or evaluation.
        index: of the experiments on record; None if there are none.
        tell: gets why the record can't be read.
    """
    declared = [(f"the final test {one.name!r}", one) for one in entries if one.split == "test"]
    declared += [] if index is None else _declared_tests(index, tell)
    found = {}
    for entry in entries:
        test = next((words for words, one in declared if one.is_same(entry)), None)
        if entry.split == "val" and test is not None:
            found[entry.name] = test
    return found


def _declared_tests(index: Index, tell: Callable[[str], None]) -> list[tuple[str, ScoredEntry]]:
    from evsys_record.looks import (
        entries_on_record,  # as `evsys validate` without records needs none of it
    )

    try:
        return [
            (f"the final test {one.name!r} of {folder}", one)
            for folder, one in entries_on_record(index, "test")
        ]
    except (StoreError, sqlite3.Error) as exc:
        tell(f"final tests on record can't be looked up: {exc}")
        return []


def final_test_warnings(
    entries: Sequence[ScoredEntry], index: Index | None, tell: Callable[[str], None]
) -> list[str]:
    """A warning for each `val` entry whose tasks are those of a final test; see `tests_among`."""
    return [
        f"benchmark {name!r} is split: val and has the tasks of {test}: what is chosen by its scores has seen the test"
        for name, test in find_final_tests(entries, index, tell).items()
    ]


def planned_tests(plan: Plan, index: Index | None) -> list[str]:
    """The warnings of `final_test_warnings` for a plan, by the tasks read when it was checked."""
    entries = [
        ScoredEntry(
            name=entry.label,
            split=entry.split,
            entry_hash=scored.content_hash,
            contents=task_contents(scored.tasks),
        )
        for entry in plan.experiment.metadata.benchmarks
        if (scored := plan.tasks.get(entry.label)) is not None
    ]
    warnings: list[str] = []
    return [*final_test_warnings(entries, index, warnings.append), *warnings]
