"""Rows to files: any file as a whole or not at all, and the next version of a dataset and its benchmark in a project."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evsys.errors import ConfigError, DataError
from evsys_record import make_directory, slug
from evsys_runtime.config.root import enclosing_project
from evsys_runtime.data.json_rows import encode_row
from evsys_traces.tasks import Selection, SplitReport, split_traces

__all__ = ["write_rows", "write_version"]

_FOLDERS = {"val": "validation", "test": "benchmark"}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows to a file, which appears when it is complete; how many there were."""
    make_directory(path.parent)
    partial = path.with_name(f".{path.name}.part")
    count = 0
    try:
        with partial.open("wb") as stream:
            for row in rows:
                stream.write(encode_row(row))
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def write_version(
    source: Path, name: str, split: str, selection: Selection, report: SplitReport
) -> dict[str, str]:
    """Make the next version of dataset `name` in the enclosing project, and the benchmark `<name>-v<N>`.

    Returns:
        Their folders, `dataset` and `benchmark`.

    Raises:
        ConfigError: the command isn't used in a project, or the name isn't one of a folder.
        DataError: nothing to train on, or nothing to test by, is left.
    """
    root = enclosing_project(Path.cwd())
    if root is None:
        raise ConfigError("this is not a project", hint="make one with `evsys init-project NAME`")
    if slug(name) != name:
        raise ConfigError(f"{name!r} is not a name of a dataset", hint=f"write {slug(name)!r}")
    datasets = root / "data" / "datasets" / name
    version = 1 + max(
        (int(path.name[1:]) for path in datasets.glob("v*") if path.name[1:].isdecimal()), default=0
    )
    dataset, benchmark = datasets / f"v{version}", root / "data" / _FOLDERS[split] / f"{name}-v{version}"
    if benchmark.exists():
        raise ConfigError(f"the benchmark {benchmark.name!r} already exists", hint=f"remove {benchmark}")
    rows, tasks = split_traces(source, selection, report)
    try:
        write_rows(dataset / "train.jsonl", rows)
        if not report.rows or not tasks:
            missing = "row to train on" if not report.rows else "task to test by"
            raise DataError(f"no {missing} is left", source=str(source), hint=_counts(report))
        write_rows(benchmark / "tasks.jsonl", tasks)
        origin = f"{source.name} (sha256:{_digest(source)})"
        moment = datetime.fromtimestamp(report.after or 0, UTC).isoformat(timespec="seconds")
        _describe(dataset, f"Conversations up to {moment}, from {origin}.")
        _describe(benchmark, f"Conversations after {moment}, from {origin}.")
    except BaseException:
        for folder in (dataset, benchmark):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return {"dataset": str(dataset), "benchmark": str(benchmark)}


def _counts(report: SplitReport) -> str:
    return (
        "; ".join(f"{count:,} left out: {reason}" for reason, count in report.left_out.most_common())
        or "check the file"
    )


def _describe(folder: Path, description: str) -> None:
    (folder / "metadata.yaml").write_text(
        f"description: {description}\nlicence: not stated\n", encoding="utf-8"
    )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
