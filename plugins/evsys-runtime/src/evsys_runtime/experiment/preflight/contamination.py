"""After training: the tasks of each benchmark entry, looked for in the rows that the arms were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import EvsysError
from evsys_record import result_tree
from evsys_record.files import write_json
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.data.contamination import DataCheck, DatasetCheck, Match, Scan, best_matches
from evsys_runtime.data.json_rows import decode_row
from evsys_runtime.data.parse import Shape, parse_rows
from evsys_runtime.data.task_index import Entry, TaskIndex
from evsys_runtime.experiment.preflight.data_check import shape_of
from evsys_runtime.experiment.preflight.weight_origins import origin_rows
from evsys_runtime.experiment.state.session import Session, run_id_of

__all__ = ["DATA_CHECK", "flagged_tasks"]

DATA_CHECK = "data_check.json"
"""The file of an experiment's record that says which tasks are among which training rows: the result of `evsys data
check`.
"""


@attrs.define(kw_only=True)
class _Rows:
    """Rows on disk, and who was trained on them."""

    path: Path
    source: str
    arms: dict[str, None] = attrs.field(factory=dict)
    repeats: set[int] = attrs.field(factory=set)


def flagged_tasks(session: Session) -> Mapping[str, Mapping[str, Match]]:
    """Look through the rows that each run keeps as `training_data.jsonl`, once where several have the same, and put
    on record what is found. Blocking.

    A search that fails leaves a warning: scores and verdict are there without it.

    Returns:
        By benchmark entry the ids of the tasks found, with their closest match.
    """
    trained = _training_rows(session)
    if not (session.benchmarks and trained):
        return {}
    entries = [Entry(name=b.name, split=b.split, tasks=b.tasks) for b in session.benchmarks]
    try:
        index = TaskIndex(entries)
        datasets = tuple(_check_rows(rows, shape, index, entries) for (_, shape), rows in trained.items())
        check = DataCheck(
            flagged=sum(len(entry.flagged) for dataset in datasets for entry in dataset.benchmarks),
            datasets=datasets,
        )
        tree = session.log_settings.redactor.tree(result_tree(check))
        write_json(session.record.directory / DATA_CHECK, tree)
    except (EvsysError, OSError, ValueError) as exc:
        session.warnings.append(f"training rows were not searched for benchmark tasks: {exc}")
        return {}
    return best_matches(entry for dataset in datasets for entry in dataset.benchmarks)


def _training_rows(session: Session) -> dict[tuple[str, Shape], _Rows]:
    """The rows of the runs that have some, and of those that their weights come from, by their content and shape."""
    found: dict[tuple[str, Shape], _Rows] = {}

    def add(arm: ArmConfig, path: Path, key: tuple[str, Shape], source: str) -> None:
        rows = found.setdefault(key, _Rows(path=path, source=source))
        rows.arms[arm.name] = None
        rows.repeats.add(arm.repeat)

    for arm in session.plan.arms:
        record = session.record.find_run(run_id_of(arm))
        if run_id_of(arm) not in session.results or record is None:  # it was never begun
            continue
        path, facts = record.training_data(), record.facts.get("data")
        if path is None or not facts:  # what an injected runner trains on isn't known
            continue
        shape = shape_of(session.plan, arm)
        add(arm, path, (str(facts["fingerprint"]), shape), _source(arm, facts["lineage"]))
        for origin in origin_rows(session, arm):
            add(arm, origin.path, (origin.fingerprint, origin.shape), origin.source)
    return found


def _source(arm: ArmConfig, lineage: Sequence[Mapping[str, Any]]) -> str:
    """The source of the rows, in the words of the experiment file."""
    data = arm.run.data
    named = (data.path, data.hf_dataset, data.dataset_name, data.dataset_id)
    return next((str(name) for name in named if name), str(lineage[0]["source"]) if lineage else "rows")


def _check_rows(rows: _Rows, shape: Shape, index: TaskIndex, entries: Sequence[Entry]) -> DatasetCheck:
    scan = Scan(index)
    for row in parse_rows(_lines(rows.path), shape):
        scan.add(row)
    return DatasetCheck(
        source=rows.source,
        arms=tuple(rows.arms),
        repeats=tuple(sorted(rows.repeats)),
        rows=scan.rows,
        unused=dict(scan.columns.unused),
        benchmarks=tuple(scan.checks(entries)),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for line in stream:
            yield decode_row(line.rstrip(b"\n"))
