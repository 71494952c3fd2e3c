"""Which records differ from what an index has of them: by times, sizes and numbers of files, without opening any."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["Changed", "KnownExperiment", "changes"]

SETTLED_NS = 2_000_000_000
"""A file that changed this recently may change again within the same tick of its file system's clock (2 s on FAT)
without a change of its mark: it is read again next time.
"""

_UNSETTLED = ""
_ABSENT = "none"
_RUN_FILES = ("run.json", "run_result.json")
_FILES = ("experiment.json", "conclusion.json", "resolved.json", "runs", "retractions.jsonl", "audit.json")


@attrs.frozen(kw_only=True)
class KnownExperiment:
    """The state of an experiment in an index: the mark of its own files, and that of each run's folder."""

    mark: str
    runs: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Changed:
    """A record to be read. `own`: the experiment as a whole, with all of its runs; else only `runs`, while those in `gone` are
    no more. `mark` and the values of `runs` are to be remembered with what is read.
    """

    folder: str
    own: bool
    mark: str
    runs: Mapping[str, str]
    gone: frozenset[str] = frozenset()


def changes(experiments: Path, known: Mapping[str, KnownExperiment]) -> tuple[list[Changed], set[str]]:
    """The changed experiments to read, and the removed ones.

    Args:
        experiments: the folder of all experiments; it need not exist.
        known: the state in the index, by folder.
    """
    found, gone = [], set(known)
    for name in _folders(str(experiments)):
        path = f"{experiments}{os.sep}{name}"
        mark = _mark(path, _FILES)
        if mark.startswith(_ABSENT):  # no experiment yet, or no more
            continue
        gone.discard(name)
        runs = f"{path}{os.sep}runs{os.sep}"
        before = known.get(name)
        change = (
            _new(name, mark, runs) if before is None or before.mark != mark else _runs(name, before, runs)
        )
        if change is not None:
            found.append(change)
    return found, gone


def _new(name: str, mark: str, runs: str) -> Changed:
    marks = {run: _mark(runs + run, _RUN_FILES) for run in _folders(runs)}
    there = {run: _stable_mark(mark) for run, mark in marks.items() if not mark.startswith(_ABSENT)}
    return Changed(folder=name, own=True, mark=_stable_mark(mark), runs=there)


def _runs(name: str, known: KnownExperiment, runs: str) -> Changed | None:
    """An experiment whose own files, and list of runs, are as they were."""
    marks = {run: _mark(runs + run, _RUN_FILES) for run in known.runs}
    differing = {run: mark for run, mark in marks.items() if mark != known.runs[run]}
    if not differing:
        return None
    gone = frozenset(run for run, mark in differing.items() if mark.startswith(_ABSENT))
    there = {run: _stable_mark(mark) for run, mark in differing.items() if run not in gone}
    return Changed(folder=name, own=False, mark=known.mark, runs=there, gone=gone)


def _folders(path: str) -> list[str]:
    """Names of folders in a folder, sorted; none where there is no folder."""
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _mark(folder: str, names: tuple[str, ...]) -> str:
    """Time, size and number of each file: a replacement changes at least one of these."""
    parts = []
    for name in names:
        try:
            found = os.stat(f"{folder}{os.sep}{name}")  # noqa: PTH116 - a Path costs as much as the call
        except OSError:  # what can't be looked at is told of when it is read
            parts.append(_ABSENT)
        else:
            parts.append(f"{found.st_mtime_ns}.{found.st_size}.{found.st_ino}")
    return ",".join(parts)


def _stable_mark(mark: str) -> str:
    """The mark to remember; one that never fits where a file has only just changed."""
    limit = time.time_ns() - SETTLED_NS
    moments = (int(part.partition(".")[0]) for part in mark.split(",") if part != _ABSENT)
    return _UNSETTLED if any(moment > limit for moment in moments) else mark
