"""Taking in pieces of a record: what is new of them is kept, and becomes rows, in one transaction."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import sqlalchemy as sa

from evsys.errors import ConfigError
from evsys_dashboard.ingest.lines import RunFile, points_of, rollout_row, run_file_of, whole_lines
from evsys_dashboard.ingest.pieces import (
    Held,
    Piece,
    digest_of,
    is_lines,
    refuse_odd_names,
    refuse_odd_project,
)
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.series import append_points
from evsys_dashboard.store.tables import experiment, file, piece, project, rollout, run, series

__all__ = ["LONGEST_LINE", "Ingest", "Taken"]

LONGEST_LINE = 64 << 20
"""Bytes of a line, which is held in memory until it is complete."""


@attrs.frozen(kw_only=True)
class Taken:
    """The outcome of a batch.

    Attributes:
        version: of the project, after it.
        changed: paths of the files that it changed.
        held: of each file in it, what is held now. A piece that would have left a gap wasn't taken.
    """

    version: int
    changed: tuple[str, ...]
    held: tuple[Held, ...]


class Ingest:
    """The one way into a database. Sending a piece again, or pieces that overlap, changes nothing.

    Args:
        database: where everything goes.
        keep_bytes: also keep the files themselves; not needed where they lie on this machine's disk.
    """

    def __init__(self, database: Database, *, keep_bytes: bool = True) -> None:
        self._database = database
        self._keep_bytes = keep_bytes

    def add_project(self, name: str) -> None:
        """Make a project, unless it is there."""
        with self._database.writing() as connection:
            _project(connection, name)

    def touch(self, project_name: str, experiment_name: str) -> None:
        """Count something as changed that isn't in the files of an experiment: that its process is gone."""
        with self._database.writing() as connection:
            project_id, version = _project(connection, project_name)
            connection.execute(
                sa.update(project).where(project.c.id == project_id).values(version=version + 1)
            )
            connection.execute(
                sa.update(experiment)
                .where(experiment.c.project_id == project_id, experiment.c.name == experiment_name)
                .values(version=version + 1)
            )

    def held(self, project_name: str, experiment_name: str) -> list[Held]:
        """The held part of each file of an experiment."""
        query = (
            sa.select(file.c.path, file.c.size, file.c.digest)
            .join(experiment, experiment.c.id == file.c.experiment_id)
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == project_name, experiment.c.name == experiment_name)
            .order_by(file.c.path)
        )
        with self._database.reading() as connection:
            return [
                Held(file=path, size=size, digest=digest) for path, size, digest in connection.execute(query)
            ]

    def take(self, project_name: str, experiment_name: str, pieces: Sequence[Piece]) -> Taken:
        """Take a batch in.

        Raises:
            ConfigError: a name in it is refused, a file of it is where another has a folder, or a line is too long;
                nothing of it is taken.
        """
        if self._keep_bytes:  # then its name becomes that of a folder
            refuse_odd_project(project_name)
        refuse_odd_names(experiment_name, pieces)
        with self._database.writing() as connection:
            project_id, version = _project(connection, project_name)
            experiment_id = _row(connection, experiment, project_id=project_id, name=experiment_name)["id"]
            batch = _Batch(
                self._database, connection, experiment_id, version + 1, keep_bytes=self._keep_bytes
            )
            batch.take(pieces)
            changes: dict[str, Any] = {"seen": time.time()}
            if batch.changed:
                version += 1
                changes["version"] = version
                connection.execute(
                    sa.update(project).where(project.c.id == project_id).values(version=version)
                )
            connection.execute(sa.update(experiment).where(experiment.c.id == experiment_id).values(changes))
            held = tuple(
                Held(file=path, size=row["size"], digest=row["digest"]) for path, row in batch.files.items()
            )
        return Taken(version=version, changed=tuple(sorted(batch.changed)), held=held)


class _Batch:
    """A batch of one experiment, in a transaction."""

    def __init__(
        self,
        database: Database,
        connection: sa.Connection,
        experiment_id: int,
        version: int,
        *,
        keep_bytes: bool,
    ) -> None:
        self._database = database
        self._connection = connection
        self._experiment_id = experiment_id
        self._version = version
        self._keep_bytes = keep_bytes
        self._runs: dict[str, int] = {}
        self._paths: set[str] | None = None
        self._folders: set[str] = set()
        self.files: dict[str, dict[str, Any]] = {}
        self.changed: set[str] = set()

    def take(self, pieces: Sequence[Piece]) -> None:
        for each in pieces:
            if each.file not in self.files:
                key = {"experiment_id": self._experiment_id, "path": each.file}
                if self._keep_bytes:
                    self._refuse_in_the_way(each.file)
                self.files[each.file] = dict(_row(self._connection, file, **key))
            if is_lines(each.file):
                self._append(each)
            else:
                self._replace(each)
        for path in self.changed:
            row = self.files[path]
            kept = {name: row[name] for name in ("size", "digest", "generation", "rest")}
            self._connection.execute(sa.update(file).where(file.c.id == row["id"]).values(kept))
            if path.startswith("runs/") and path.count("/") > 1:
                self._run(path.split("/")[1])

    def _refuse_in_the_way(self, path: str) -> None:
        """Refuse a file in whose path another file is, or that is in the path of others: no folder can hold both."""
        if self._paths is None:
            query = sa.select(file.c.path).where(file.c.experiment_id == self._experiment_id)
            self._paths = set(self._connection.execute(query).scalars())
            self._folders = {folder for each in self._paths for folder in _folders(each)}
        in_the_way = next((folder for folder in _folders(path) if folder in self._paths), None)
        if in_the_way is None and path in self._folders:
            in_the_way = f"{path}/..."
        if in_the_way is not None:
            raise ConfigError(
                f"{path} can't be in one record with {in_the_way}: one is a folder of the other"
            )
        self._paths.add(path)
        self._folders.update(_folders(path))

    def _run(self, name: str) -> int:
        """The number of a run, marked as changed."""
        if name not in self._runs:
            row = _row(self._connection, run, experiment_id=self._experiment_id, name=name)
            self._runs[name] = row["id"]
            self._connection.execute(
                sa.update(run).where(run.c.id == row["id"]).values(version=self._version)
            )
        return self._runs[name]

    def _append(self, new: Piece) -> None:
        row = self.files[new.file]
        if new.restart and row["size"]:
            self._forget(new.file)
        overlap = row["size"] - new.place
        if overlap < 0 or overlap >= len(new.data):
            return
        data = new.data[overlap:]
        self._keep(row, data)
        unread = row["rest"] + data
        if len(unread) - unread.rfind(b"\n") > LONGEST_LINE:
            raise ConfigError(f"{new.file} has a line of more than {LONGEST_LINE} bytes")
        end = unread.rfind(b"\n") + 1
        start = row["size"] - len(row["rest"])
        self._add_rows(run_file_of(new.file), unread[:end], start)
        row.update(
            size=row["size"] + len(data),
            digest=digest_of(new.file, data, row["digest"]),
            rest=unread[end:],
        )
        self.changed.add(new.file)

    def _replace(self, new: Piece) -> None:
        row = self.files[new.file]
        digest = "" if new.gone else digest_of(new.file, new.data)
        if digest == row["digest"]:
            return
        self._connection.execute(sa.delete(piece).where(piece.c.file_id == row["id"]))
        row.update(size=0, generation=row["generation"] + 1)
        if not new.gone:
            self._keep(row, new.data)
        row.update(size=len(new.data), digest=digest)
        self.changed.add(new.file)

    def _keep(self, row: Mapping[str, Any], data: bytes) -> None:
        if self._keep_bytes:
            kept = {"file_id": row["id"], "place": row["size"], "data": zlib.compress(data, 3)}
            self._connection.execute(sa.insert(piece).values(kept))

    def _forget(self, path: str) -> None:
        """Begin a file again: its writer lost bytes sent before, as a power cut may do."""
        row = self.files[path]
        self._connection.execute(sa.delete(piece).where(piece.c.file_id == row["id"]))
        what = run_file_of(path)
        if what is not None:
            run_id = self._run(what.run)
            table = series if what.holds == "metrics" else rollout
            of_file = (table.c.run_id == run_id) & (table.c.phase == what.phase)
            self._connection.execute(sa.delete(table).where(of_file))
        row.update(size=0, digest="", rest=b"", generation=row["generation"] + 1)
        self.changed.add(path)

    def _add_rows(self, what: RunFile | None, data: bytes, start: int) -> None:
        if what is None or not data:
            return
        run_id = self._run(what.run)
        if what.holds == "metrics":
            points = (point for _, line in whole_lines(data) for point in points_of(line))
            append_points(self._database, self._connection, run_id, what.phase, points)
            return
        rows = [
            {"run_id": run_id, "phase": what.phase, "place": start + place, **row}
            for place, line in whole_lines(data)
            if (row := rollout_row(line)) is not None
        ]
        self._database.insert(self._connection, rollout, rows)


def _folders(path: str) -> Iterator[str]:
    """The folders that a file is in, from the record's own on."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _project(connection: sa.Connection, name: str) -> tuple[int, int]:
    """The number and version of a project, which others can't change before this transaction ends."""
    query = sa.select(project.c.id, project.c.version).where(project.c.name == name).with_for_update()
    found = connection.execute(query).one_or_none()
    if found is None:
        _insert_once(connection, project, {"name": name, "version": 0})
        found = connection.execute(query).one()
    return found.id, found.version


def _row(connection: sa.Connection, table: sa.Table, **key: Any) -> sa.RowMapping:
    """The row with this key, made if there is none."""
    query = sa.select(table).where(*(table.c[name] == value for name, value in key.items()))
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        _insert_once(connection, table, key)
        found = connection.execute(query).mappings().one()
    return found


def _insert_once(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> None:
    from sqlalchemy.dialects import postgresql, sqlite

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(values).on_conflict_do_nothing())
