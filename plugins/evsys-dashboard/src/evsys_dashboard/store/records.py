"""Records as folders, for the code that reads records: those of this machine, or those held in the database."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import sqlalchemy as sa

from evsys_dashboard.ingest.pieces import is_lines, refuse_odd_project
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.tables import experiment, file, piece, project
from evsys_record import make_directory, write_atomic
from evsys_record.encoding import encode_record
from evsys_record.experiment_record import RUNNING
from evsys_record.files import storing
from evsys_record.lock import LEASE_SECONDS, Holder

__all__ = ["HeldRecords", "LocalRecords", "Records"]

SILENT_SECONDS = 3600.0
"""How long a running experiment may send nothing."""

_WRITTEN = ".held.json"
_AT_ONCE = 64


class Records(Protocol):
    """Where the records are, as folders."""

    def experiments(self, project_name: str) -> Path:
        """The folder of all experiments of a project, as far as they were asked for."""

    def across(self, project_names: Sequence[str]) -> Path:
        """One folder with the experiments of several projects. Of those with one name, all but the first are `NAME@PROJECT`."""

    def experiment(self, project_name: str, name: str) -> Path:
        """The folder of one experiment, byte for byte as it was taken in."""


class LocalRecords:
    """Records that lie on this machine's disk.

    Args:
        directory: the folder of all experiments.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def experiments(self, project_name: str) -> Path:
        """The folder itself."""
        return self._directory

    def across(self, project_names: Sequence[str]) -> Path:
        """The folder itself: there is one project."""
        return self._directory

    def experiment(self, project_name: str, name: str) -> Path:
        """The experiment's own folder."""
        return self._directory / name


class HeldRecords:
    """Records held in the database, written to folders when they are read. The folders may be removed at any time.

    An experiment that came in as running counts as such until nothing has come for `silent_seconds`; then it is taken for crashed.

    Args:
        database: that holds them.
        directory: where the folders are.
        silent_seconds: longest silence of a running experiment.
    """

    def __init__(
        self, database: Database, directory: Path, *, silent_seconds: float = SILENT_SECONDS
    ) -> None:
        self._database = database
        self._directory = directory
        self._silent_seconds = silent_seconds
        self._locks: dict[Path, Lock] = {}
        self._lock = Lock()
        self._written: dict[str, dict[str, int]] = {}

    def experiments(self, project_name: str) -> Path:
        """The folder of a project's experiments, each brought up to date."""
        query = (
            sa.select(experiment.c.name, experiment.c.version, experiment.c.seen, experiment.c.status)
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == project_name)
        )
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        folder = make_directory(self._project(project_name))
        with storing(folder, "list"):
            there = {path.name for path in folder.iterdir()}
        written = self._written.setdefault(project_name, {})
        for name, version, seen, status in found:
            if name not in there or written.get(name) != version:
                self.experiment(project_name, name)
                written[name] = version
            if status == RUNNING:
                self._hold(folder / name, seen)
        return folder

    def across(self, project_names: Sequence[str]) -> Path:
        """A folder with links to the experiments of several projects. A record sent to two of them is there once."""
        if len(project_names) == 1:
            return self.experiments(project_names[0])
        wanted = self._merged(project_names)
        digest = hashlib.sha256("\0".join(project_names).encode()).hexdigest()[:16]
        folder = make_directory(self._directory / ".across" / digest / ".evsys" / "experiments")
        with self._lock, storing(folder):
            for path in folder.iterdir():
                if wanted.get(path.name) != path.readlink():
                    path.unlink()
            for name, place in wanted.items():
                if not (folder / name).is_symlink():
                    (folder / name).symlink_to(place, target_is_directory=True)
        return folder

    def _merged(self, project_names: Sequence[str]) -> dict[str, Path]:
        """The folders of all experiments of some projects, by distinct names."""
        owners: dict[str, list[Path]] = {}
        for owner in project_names:
            for path in self.experiments(owner).iterdir():
                if path.is_dir() and not path.name.startswith("."):
                    owners.setdefault(path.name, []).append(path)
        wanted: dict[str, Path] = {}
        for name, places in owners.items():
            wanted[name] = places[0]
            for place in places[1:]:
                if _digests(place) != _digests(places[0]):
                    wanted[f"{name}@{self._owner(place)}"] = place
        return wanted

    def owner(self, experiments: Path, name: str) -> str:
        """The project of an experiment in a folder that `experiments` or `across` gave."""
        path = experiments / name
        return self._owner(path.readlink() if path.is_symlink() else path)

    def _owner(self, path: Path) -> str:
        return path.relative_to(self._directory).parts[0]

    def _hold(self, folder: Path, seen: float) -> None:
        """Let readers of a record see it as held by a process of another machine, until it has been silent for too long."""
        path = folder / ".lease"
        with storing(path):
            if not path.exists():
                sender = Holder(pid=0, host="the sender's machine", since="", boot="unknown")
                write_atomic(path, encode_record(sender))
            until = seen + self._silent_seconds - LEASE_SECONDS
            os.utime(path, (until, until))

    def _project(self, project_name: str) -> Path:
        refuse_odd_project(project_name)
        return self._directory / project_name / ".evsys" / "experiments"

    def experiment(self, project_name: str, name: str) -> Path:
        """The experiment's folder, brought up to date with the database."""
        folder = self._project(project_name) / name
        with self._lock:
            lock = self._locks.setdefault(folder, Lock())
        with lock, self._database.reading() as connection:
            query = (
                sa.select(file.c.id, file.c.path, file.c.size, file.c.digest, file.c.generation)
                .join(experiment, experiment.c.id == file.c.experiment_id)
                .join(project, project.c.id == experiment.c.project_id)
                .where(project.c.name == project_name, experiment.c.name == name)
            )
            found = connection.execute(query).mappings().all()
            written = _previous_parts(folder)
            current = {row["path"]: [row["generation"], row["size"], row["digest"]] for row in found}
            if current != written:
                make_directory(folder)
                for row in found:
                    if written.get(row["path"]) != current[row["path"]]:
                        _bring_up_to_date(connection, folder, row, written.get(row["path"]))
                write_atomic(folder / _WRITTEN, json.dumps(current).encode())
        return folder


def _digests(folder: Path) -> dict[str, str]:
    """The digest of each file of a record as written before."""
    return {path: part[-1] for path, part in _previous_parts(folder).items() if part[-1]}


def _previous_parts(folder: Path) -> dict[str, list[Any]]:
    """The generation, size and digest of each file as written before; nothing if unknown."""
    try:
        with storing(folder / _WRITTEN, "read"):
            found = json.loads((folder / _WRITTEN).read_bytes()) if (folder / _WRITTEN).exists() else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bring_up_to_date(
    connection: sa.Connection, folder: Path, row: sa.RowMapping, written: list[Any] | None
) -> None:
    path = folder / row["path"]
    make_directory(path.parent)
    if not row["digest"]:
        path.unlink(missing_ok=True)
        return
    if not is_lines(row["path"]):
        write_atomic(path, b"".join(_data(connection, row["id"], 0)))
        return
    start = 0
    if written is not None and written[0] == row["generation"] and path.is_file():
        start = min(path.stat().st_size, row["size"])
    with storing(path), path.open("r+b" if start else "wb") as stream:
        stream.truncate(start)
        stream.seek(start)
        for data in _data(connection, row["id"], start):
            stream.write(data)


def _data(connection: sa.Connection, file_id: int, start: int) -> Any:
    """The bytes of a file from a place on, piece by piece."""
    first = sa.select(sa.func.max(piece.c.place)).where(piece.c.file_id == file_id, piece.c.place <= start)
    place = connection.execute(first).scalar() or 0
    while True:
        query = (
            sa.select(piece.c.place, piece.c.data)
            .where(piece.c.file_id == file_id, piece.c.place >= place)
            .order_by(piece.c.place)
            .limit(_AT_ONCE)
        )
        found = connection.execute(query).all()
        for at, packed in found:
            data = zlib.decompress(packed)
            yield data[max(0, start - at) :]
            place = at + len(data)
        if len(found) < _AT_ONCE:
            return
