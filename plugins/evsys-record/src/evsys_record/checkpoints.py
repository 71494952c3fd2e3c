"""The files of checkpoints: a folder that appears whole or not at all, and one line about it.

The contents of a checkpoint are up to training. A folder is complete when it has a manifest; one without was left
by a killed process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_record.attempts import Attempt, live
from evsys_record.encoding import now
from evsys_record.files import (
    make_directory,
    read_json,
    storing,
    sync_directory,
    temporary_name,
    write_json,
)
from evsys_record.hashing import file_digest
from evsys_record.jsonl import append_record, read_jsonl

__all__ = ["MANIFEST", "CheckpointEntry", "CheckpointFiles"]

MANIFEST = "manifest.json"
"""Written last into a checkpoint folder: one that has it is complete."""

_KINDS = {"step": int, "attempt": int, "manifest": dict, "files": dict}
"""The fields of a manifest, by their JSON types."""


@attrs.frozen(kw_only=True)
class CheckpointEntry:
    """A complete checkpoint: `manifest` is what it was committed with, `files` the hash and size of each file."""

    step: int
    attempt: int
    directory: Path
    manifest: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each file, which identifies the weights."""
        return {name: facts["sha256"] for name, facts in self.files.items()}

    def verify(self) -> None:
        """Compare every file with its hash.

        Raises:
            StoreError: a file is missing or has changed.
        """
        for name, known in self.hashes.items():
            path = self.directory / name
            if not path.is_file() or file_digest(path) != known:
                problem = "has changed" if path.is_file() else "is missing"
                raise StoreError(
                    f"checkpoint {self.directory}: {name} {problem} since it was saved",
                    hint="resume from an earlier checkpoint",
                    path=str(path),
                )


class CheckpointFiles:
    """`checkpoints/<step>/` and `checkpoints.jsonl` of one run. One process writes, any number may read."""

    def __init__(
        self,
        run_directory: Path,
        sequence: Callable[[], int] | None = None,
        sync: Callable[[], None] | None = None,
        scrub: Callable[[Any], Any] = lambda manifest: manifest,
    ) -> None:
        """`sequence` numbers the lines, `sync` makes all lines of the run durable, `scrub` takes secrets out of manifests; a
        `RunRecord` gives its own.
        """
        self._sequence = sequence or partial(next, count())
        self._sync = sync
        self._scrub = scrub
        self.directory = run_directory / "checkpoints"
        self.log = run_directory / "checkpoints.jsonl"

    def begin(self, step: int) -> Path:
        """A fresh folder that no reader sees, to save into. Who begins it commits or removes it."""
        temporary = temporary_name(self.directory / str(step))
        return make_directory(temporary)

    def commit(
        self, temporary: Path, *, step: int, attempt: int, manifest: Mapping[str, Any]
    ) -> CheckpointEntry:
        """Make the folder a checkpoint: everything in it reaches the disk, then it gets its name, then its line.

        What the run has on record so far reaches the disk before, so that no checkpoint outlives the lines of its steps.
        The name is the step. If another attempt has that name, it is `<step>-a<attempt>`: nothing is replaced.

        Raises:
            StoreError: the disk is full, ...
        """
        if self._sync is not None:
            self._sync()
        with storing(temporary, "save checkpoint"):
            files = {path.relative_to(temporary).as_posix(): _sync_file(path) for path in _files(temporary)}
            write_json(
                temporary / MANIFEST,
                {
                    "step": step,
                    "attempt": attempt,
                    "saved": now(),
                    "manifest": self._scrub(manifest),
                    "files": files,
                    "complete": True,
                },
            )
            final = self._free_name(step, attempt)
            temporary.rename(final)
            sync_directory(self.directory)
            sync_directory(self.directory.parent)  # which may have got `checkpoints` just now
        entry = _entry(final)
        self._list(entry)
        return entry

    def complete(self, attempts: Sequence[Attempt] = ()) -> list[CheckpointEntry]:
        """Complete checkpoints, in the order in which they were saved; of the live lineage if attempts are given.

        Those whose manifests can't be read are passed over; `damaged` has them.
        """
        entries = []
        for line in live(read_jsonl(self.log, missing_ok=True), attempts):
            directory = self.directory / PurePosixPath(line["name"]).name
            if (directory / MANIFEST).is_file():
                with suppress(StoreError):
                    entries.append(_entry(directory))
        return entries

    def damaged(self) -> list[StoreError]:
        """The fault of each checkpoint with an unreadable manifest."""
        problems = []
        for path in sorted(self.directory.glob(f"[!.]*/{MANIFEST}")):
            try:
                _entry(path.parent)
            except StoreError as error:
                problems.append(error)
        return problems

    def latest(self, attempts: Sequence[Attempt] = ()) -> CheckpointEntry | None:
        """The complete checkpoint with the most steps; of the newest attempt among equals."""
        return max(self.complete(attempts), key=lambda entry: (entry.step, entry.attempt), default=None)

    def recover(self) -> list[Path]:
        """Tidy up after a killed process: call it before a new attempt, with the experiment's lock.

        Folders that never became checkpoints are removed and returned; a checkpoint that was whole but has no line
        yet gets it.
        """
        if not self.directory.is_dir():
            return []
        listed = {line["name"] for line in read_jsonl(self.log, missing_ok=True)}
        torn = []
        for path in sorted(self.directory.iterdir()):
            if path.name.startswith("."):
                torn.append(path)
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in listed and (path / MANIFEST).is_file():
                with suppress(StoreError):  # `damaged` has it
                    self._list(_entry(path))
        return torn

    def remove(self, directory: Path) -> None:
        """Delete a checkpoint's files; its line stays, and readers pass it over."""
        doomed = temporary_name(directory)
        with storing(directory, "remove"):
            directory.rename(doomed)
            shutil.rmtree(doomed)

    def _list(self, entry: CheckpointEntry) -> None:
        append_record(
            self.log,
            {
                "attempt": entry.attempt,
                "step": entry.step,
                "seq": self._sequence(),
                "name": entry.directory.name,
                "time": now(),
                "bytes": sum(facts["bytes"] for facts in entry.files.values()),
                "manifest": entry.manifest,
            },
        )

    def _free_name(self, step: int, attempt: int) -> Path:
        names = [f"{step}", f"{step}-a{attempt}"]
        names += [f"{step}-a{attempt}-{number}" for number in range(2, 1000)]
        return next(path for name in names if not (path := self.directory / name).exists())


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _sync_file(path: Path) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"bytes": path.stat().st_size, "sha256": file_digest(path)}


def _entry(directory: Path) -> CheckpointEntry:
    tree = read_json(directory / MANIFEST)
    try:
        facts = {name: tree[name] for name in _KINDS}
    except KeyError as exc:
        raise StoreError(f"{directory / MANIFEST} lacks {exc}", path=str(directory)) from exc
    for name, kind in _KINDS.items():
        if not isinstance(facts[name], kind):
            raise StoreError(f"{directory / MANIFEST} holds no {name} that makes sense", path=str(directory))
    for name, known in facts["files"].items():
        _check_file(directory, name, known)
    return CheckpointEntry(directory=directory, **facts)


def _check_file(directory: Path, name: str, facts: Any) -> None:
    """Accept only files inside the checkpoint: a record may come from someone else, and forks copy what it names."""
    path = PurePosixPath(name)
    plain = name == path.as_posix() and not {"\\", "\0"} & set(name)
    if not plain or path.is_absolute() or not path.parts or ".." in path.parts or ":" in path.parts[0]:
        raise StoreError(
            f"{directory / MANIFEST} names the file {name!r}, which is not inside the checkpoint",
            hint="don't use this record: its manifest was edited",
            path=str(directory),
        )
    if not (directory / name).resolve().is_relative_to(directory.resolve()):
        raise StoreError(
            f"{directory / MANIFEST} names the file {name!r}, a link that leads out of the checkpoint",
            hint="don't use this record: its files were changed",
            path=str(directory),
        )
    size = facts.get("bytes") if isinstance(facts, Mapping) else None
    if type(size) is not int or size < 0 or not isinstance(facts.get("sha256"), str):
        raise StoreError(
            f"{directory / MANIFEST} has no valid size and hash of the file {name!r}", path=str(directory)
        )
