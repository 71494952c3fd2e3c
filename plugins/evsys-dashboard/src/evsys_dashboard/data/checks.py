"""Tasks of benchmark versions looked for in dataset versions, by the measure of `evsys data check`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import attrs
import sqlalchemy as sa

from evsys.errors import DataError
from evsys.types import Message, PromptExample
from evsys_dashboard.data.catalogue import DataStore, Found
from evsys_dashboard.data.shapes import Check, Checks, DataVersion, Kind
from evsys_dashboard.store.database import Database, insert_once
from evsys_dashboard.store.tables import data_check
from evsys_runtime import RowProblem, parse_row
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.data.contamination import BenchmarkCheck, Scan, count_by_match
from evsys_runtime.data.row_texts import texts_in
from evsys_runtime.data.task_index import Entry, TaskIndex

__all__ = ["MOST_CHECKED", "check_version"]

MOST_CHECKED = 64 << 20
"""Bytes of a dataset or benchmark that is checked on a server."""

MOST_OTHERS = 50
"""The most versions that one is checked against."""


@attrs.frozen
class _Side:
    """A version to compare, with its bytes."""

    version: DataVersion
    blob_id: int


def check_version(
    database: Database, store: DataStore, project: str, found: Found, *, may_read_tests: bool
) -> Checks:
    """A dataset version against the latest version of each benchmark, or the other way round. What was found before is looked up.

    Args:
        database: keeps what is found.
        store: has the versions.
        project: whose they are.
        found: the version.
        may_read_tests: list the tasks of test sets that are flagged.
    """
    own = _Side(found.version, found.blob_id)
    other_kind: Kind = "benchmarks" if own.version.kind == "datasets" else "datasets"
    listed = store.catalogue(project, other_kind, limit=MOST_OTHERS).names
    others = [store.find(project, other_kind, each.latest.id) for each in listed]
    pairs = [
        (own, _Side(other.version, other.blob_id))
        if own.version.kind == "datasets"
        else (_Side(other.version, other.blob_id), own)
        for other in others
    ]
    known = _find_checks(database, pairs)
    by_dataset: dict[int, list[tuple[_Side, _Side]]] = {}
    for pair in pairs:
        if (pair[0].blob_id, pair[1].blob_id) not in known:
            by_dataset.setdefault(pair[0].blob_id, []).append(pair)
    for missing in by_dataset.values():
        made = _compare(store, missing[0][0], [benchmark for _, benchmark in missing])
        _keep(database, made)
        known |= made
    checks = [_check(pair, known[pair[0].blob_id, pair[1].blob_id], may_read_tests) for pair in pairs]
    return Checks(id=found.version.id, checks=tuple(checks))


type _Documents = dict[tuple[int, int], Mapping[str, Any]]


def _find_checks(database: Database, pairs: Sequence[tuple[_Side, _Side]]) -> _Documents:
    datasets = {dataset.blob_id for dataset, _ in pairs}
    benchmarks = {benchmark.blob_id for _, benchmark in pairs}
    query = sa.select(data_check).where(
        data_check.c.dataset_id.in_(datasets), data_check.c.benchmark_id.in_(benchmarks)
    )
    with database.reading() as connection:
        rows = connection.execute(query).mappings().all()
    return {(row["dataset_id"], row["benchmark_id"]): json.loads(row["document"]) for row in rows}


def _keep(database: Database, made: _Documents) -> None:
    with database.writing() as connection:
        for (dataset, benchmark), document in made.items():
            row = {"dataset_id": dataset, "benchmark_id": benchmark, "document": json.dumps(document)}
            insert_once(connection, data_check, row)


def _compare(store: DataStore, dataset: _Side, benchmarks: Sequence[_Side]) -> _Documents:
    """Look for the tasks of benchmarks in a dataset, whose rows go by once."""
    found: _Documents = {}
    entries: list[tuple[_Side, Entry]] = []
    for benchmark in benchmarks:
        problem = _too_large(dataset.version) or _too_large(benchmark.version)
        try:
            if problem is None:
                entries.append((benchmark, _entry(store, benchmark)))
        except DataError as exc:
            problem = f"its rows are not tasks: {exc.message.splitlines()[0]}"
        if problem is not None:
            found[dataset.blob_id, benchmark.blob_id] = {"problem": problem}
    if entries:
        scan = Scan(TaskIndex(entry for _, entry in entries))
        with closing(store.blobs.lines(dataset.blob_id)) as lines:
            for row in _typed_rows(lines):
                scan.add(row)
        for (benchmark, _), check in zip(entries, scan.checks([entry for _, entry in entries]), strict=True):
            found[dataset.blob_id, benchmark.blob_id] = _document(check)
    return found


def _too_large(version: DataVersion) -> str | None:
    if version.size <= MOST_CHECKED:
        return None
    return f"{version.id} has {version.size} bytes, and the server checks at most {MOST_CHECKED}; use `evsys data check`"


def _entry(store: DataStore, benchmark: _Side) -> Entry:
    with closing(store.blobs.lines(benchmark.blob_id)) as lines:
        rows = [json.loads(line) for line in lines]
    if any(row.get("path") is not None for row in rows):
        raise DataError("a task that lies in a folder can't be read on a server")
    tasks, _ = load_tasks(rows, name=benchmark.version.id)
    return Entry(name=benchmark.version.id, split=benchmark.version.split or "val", tasks=tasks)


def _typed_rows(lines: Iterable[bytes]) -> Iterator[Any]:
    """Rows in the shape that they have; of any other row, all texts that are in it."""
    for index, line in enumerate(lines):
        row = json.loads(line)
        yield next(_parse_as_any(row, index), None) or PromptExample(
            row_id=str(index),
            prompt=tuple(Message(role="user", content=text) for text in texts_in(row)),
        )


def _parse_as_any(row: Mapping[str, Any], index: int) -> Iterator[Any]:
    for shape in ("chat", "pair", "prompt", "task"):
        try:
            yield parse_row(row, shape, index)
        except RowProblem:
            continue


def _document(check: BenchmarkCheck) -> dict[str, Any]:
    return {
        "checked": check.tasks,
        "matches": count_by_match(task.match for task in check.flagged),
        "tasks": [task.task_id for task in check.flagged],
    }


def _check(pair: tuple[_Side, _Side], document: Mapping[str, Any], may_read_tests: bool) -> Check:
    dataset, benchmark = (side.version for side in pair)
    tasks = document.get("tasks", ())
    shown = tuple(tasks) if may_read_tests or benchmark.split != "test" else ()
    return Check(
        dataset=dataset.id,
        benchmark=benchmark.id,
        split=benchmark.split,
        checked=document.get("checked", 0),
        flagged=len(tasks),
        matches=document.get("matches", {}),
        tasks=shown,
        problem=document.get("problem"),
    )
