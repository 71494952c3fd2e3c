"""Records as folders, for the code that reads records: those of this machine, or those held in the database."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import sqlalchemy as sa

from evsys_dashboard.ingest.pieces import is_lines, refuse_odd_project
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.tables import experiment, file, piece, project
from evsys_record import make_directory, write_atomic
from evsys_record.files import storing

__all__ = ["HeldRecords", "LocalRecords", "Records"]

_WRITTEN = ".held.json"
_AT_ONCE = 64


class Records(Protocol):
    """Where the records are, as folders."""

    def experiments(self, project_name: str) -> Path:
        """The folder of all experiments of a project, as far as they were asked for."""

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

    def experiment(self, project_name: str, name: str) -> Path:
        """The experiment's own folder."""
        return self._directory / name


class HeldRecords:
    """Records held in the database, written to folders when they are read. The folders may be removed at any time.

    Args:
        database: that holds them.
        directory: where the folders are.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory
        self._locks: dict[Path, Lock] = {}
        self._lock = Lock()

    def experiments(self, project_name: str) -> Path:
        """The folder of a project's experiments, each brought up to date."""
        query = (
            sa.select(experiment.c.name)
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == project_name)
        )
        with self._database.reading() as connection:
            names = connection.execute(query).scalars().all()
        for name in names:
            self.experiment(project_name, name)
        return make_directory(self._project(project_name))

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
            current = {row["path"]: [row["generation"], row["size"]] for row in found}
            if current != written:
                make_directory(folder)
                for row in found:
                    if written.get(row["path"]) != current[row["path"]]:
                        _bring_up_to_date(connection, folder, row, written.get(row["path"]))
                write_atomic(folder / _WRITTEN, json.dumps(current).encode())
        return folder


def _previous_parts(folder: Path) -> dict[str, list[int]]:
    """The generation and size of each file as written before; nothing if unknown."""
    try:
        with storing(folder / _WRITTEN, "read"):
            found = json.loads((folder / _WRITTEN).read_bytes()) if (folder / _WRITTEN).exists() else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bring_up_to_date(
    connection: sa.Connection, folder: Path, row: sa.RowMapping, written: list[int] | None
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
