"""The interface to the data room: the only place in this room that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from evsys.errors import DataError
from evsys.types import HarborTask
from evsys_runtime.config import placeholders
from evsys_runtime.config.model import DataConfig, PluginSpec
from evsys_runtime.data.stored_data import find_dataset

if TYPE_CHECKING:
    from evsys import Registry

__all__ = ["Tasks", "load_tasks", "most_rows", "suffix_hint", "suffixes"]


@attrs.frozen(kw_only=True, eq=False)
class Tasks:
    """The tasks of a file, the hash of their contents, and their places."""

    tasks: tuple[HarborTask, ...]
    file: Path
    content_hash: str | None = None
    transformed: bool = False

    def line_of(self, task_id: str) -> int | None:
        """The physical line of a task's row; None where the format has no lines, or where transforms made it, and for folders."""
        if self.transformed or self.file.is_dir():
            return None
        from evsys_runtime.data.readers import ReadReport, read_rows

        report = ReadReport()
        for row in read_rows(self.file, report=report):
            if str(row.get("task_id")) == task_id:
                return report.line
        return None


def load_tasks(
    path: Path, name: str, project_root: Path, transforms: Sequence[PluginSpec], registry: Registry
) -> Tasks:
    """Read a benchmark's file, or the `tasks.jsonl` of its folder; `name` is what messages call it.

    Raises:
        DataError: with every problem of the file.
    """
    from evsys_runtime.data.benchmark import load_tasks as load
    from evsys_runtime.data.benchmark import tasks_file

    try:
        tasks, content_hash = load(
            path,
            name=name,
            project_root=project_root,
            transforms=transforms,
            registry=registry,
            resolve=placeholders.resolve,
        )
    except OSError as exc:
        raise DataError(f"can't be read: {exc.strerror or exc}", source=name) from exc
    return Tasks(tasks=tasks, content_hash=content_hash, file=tasks_file(path), transformed=bool(transforms))


def most_rows(data: DataConfig, root: Path, registry: Registry, *, enough: int) -> int | None:
    """At most how many rows a run's `data` gives; None where that is `enough` or more, or can't be known without running it.

    Only the transforms of evsys are known not to add rows, all but `mix`.
    """
    entries = [registry.find("transform", spec.kind) for spec in data.transforms]
    if (
        data.replay is not None
        or data.hf_dataset is not None
        or any(entry.local or entry.distribution != "evsys-std" or entry.name == "mix" for entry in entries)
    ):
        return None
    if data.rows is not None:
        return len(data.rows) if len(data.rows) < enough else None
    reference = data.dataset_id or data.dataset_name
    try:
        path = find_dataset(root, reference).path if reference else root / (data.path or "")
        rows = _rows(path, data, enough)
    except (DataError, OSError):  # found again, and reported, where the rows are read
        return None
    return rows if rows < enough else None


def _rows(path: Path, data: DataConfig, enough: int) -> int:
    """How many rows a file has, `enough` if there are as many."""
    from evsys_runtime.data.readers import read_rows

    rows = read_rows(path, format=data.source_kind, on_bad_row=data.on_bad_row)
    return sum(1 for _ in islice(rows, enough))


def suffix_hint(path: Path) -> str:
    """The remedy for a file whose suffix names no format."""
    from evsys_runtime.data import readers

    return readers.suffix_hint(path)


def suffixes() -> frozenset[str]:
    """The suffixes of files that can be read without naming their format."""
    from evsys_runtime.data.readers import FORMATS

    return frozenset(FORMATS)
