"""Taking in pieces of a record: what is new of them is kept, and becomes rows, in one transaction."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from threading import Lock
from typing import Any, NamedTuple

import attrs
import sqlalchemy as sa

from evsys.errors import ConfigError
from evsys_dashboard.ingest.lines import Point, RunFile, points_of, rollout_row, run_file_of, whole_lines
from evsys_dashboard.ingest.pieces import (
    Held,
    Piece,
    digest_of,
    is_lines,
    is_summarised,
    refuse_odd_names,
    refuse_odd_project,
)
from evsys_dashboard.store.database import Database, insert_once
from evsys_dashboard.store.series import append_points
from evsys_dashboard.store.tables import experiment, file, piece, project, rollout, run, series

__all__ = ["LONGEST_LINE", "Ingest", "Taken"]

LONGEST_LINE = 64 << 20
"""Bytes of a line, which is held in memory until it is complete."""

MOST_TOGETHER, MOST_BATCHES = 8 << 20, 64
"""Bytes and batches of a transaction that has more than one batch."""

# Statements of each batch. Made once, since making one costs more than to execute it.
_PROJECT = (
    sa.select(project.c.id, project.c.version).where(project.c.name == sa.bindparam("name")).with_for_update()
)
_EXPERIMENTS = sa.select(
    experiment.c.id,
    experiment.c.project_id,
    experiment.c.name,
    experiment.c.version,
    experiment.c.summarised,
).where(
    experiment.c.project_id.in_(sa.bindparam("projects", expanding=True)),
    experiment.c.name.in_(sa.bindparam("names", expanding=True)),
)
_FILES = sa.select(file).where(
    file.c.experiment_id.in_(sa.bindparam("experiments", expanding=True)),
    file.c.path.in_(sa.bindparam("paths", expanding=True)),
)
_RUNS = sa.select(run.c.id, run.c.experiment_id, run.c.name).where(
    run.c.experiment_id.in_(sa.bindparam("experiments", expanding=True)),
    run.c.name.in_(sa.bindparam("names", expanding=True)),
)


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


@attrs.define(kw_only=True)
class _Sent:
    """A batch, and what became of it."""

    project: str
    experiment: str
    pieces: Sequence[Piece]
    outcome: Taken | Exception | None = None


class Ingest:
    """The one way into a database. Sending a piece again, or pieces that overlap, changes nothing.

    Args:
        database: where everything goes.
        keep_bytes: also keep the files themselves; not needed where they lie on this machine's disk.
    """

    def __init__(self, database: Database, *, keep_bytes: bool = True) -> None:
        self._database = database
        self._keep_bytes = keep_bytes
        self._waiting: deque[_Sent] = deque()
        self._turn = Lock()

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
        """Take a batch in. Batches that come at once, from several threads, share a transaction.

        Raises:
            ConfigError: a name in it is refused, a file of it is where another has a folder, or a line is too long;
                nothing of it is taken.
        """
        if self._keep_bytes:  # then its name becomes that of a folder
            refuse_odd_project(project_name)
        refuse_odd_names(experiment_name, pieces)
        sent = _Sent(project=project_name, experiment=experiment_name, pieces=pieces)
        self._waiting.append(sent)
        with self._turn:
            while sent.outcome is None:  # else the thread before has taken it in with its own
                self._take_waiting()
        if isinstance(sent.outcome, Exception):
            raise sent.outcome
        return sent.outcome

    def _take_waiting(self) -> None:
        """Take in the batches that wait, the earliest first, in one transaction; if one is refused, each in its own."""
        together: list[_Sent] = []
        size = 0
        for sent in list(self._waiting):
            size += sum(len(each.data) for each in sent.pieces)
            if together and (size > MOST_TOGETHER or len(together) == MOST_BATCHES):
                break
            together.append(sent)
        try:
            self._take_together(together)
        except Exception as exc:  # raised again in the thread that sent the batch
            if len(together) == 1:
                together[0].outcome = exc
            else:
                for sent in together:
                    try:
                        self._take_together([sent])
                    except Exception as its_own:  # as above
                        sent.outcome = its_own
        for _ in together:
            self._waiting.popleft()

    def _take_together(self, group: Sequence[_Sent]) -> None:
        with self._database.writing() as connection:
            # In this order in every server, so that none waits for another that waits for it.
            projects = {name: _project(connection, name) for name in sorted({sent.project for sent in group})}
            owners = _experiments(
                connection, dict.fromkeys((projects[sent.project].id, sent.experiment) for sent in group)
            )
            batch = _Batch(
                self._database,
                connection,
                [
                    (
                        owners[projects[sent.project].id, sent.experiment]["id"],
                        projects[sent.project].version + 1,
                        sent.pieces,
                    )
                    for sent in group
                ],
                keep_bytes=self._keep_bytes,
            )
            changed = batch.take()
            self._mark(connection, projects, owners, changed)
        grown = {key[0] for key, owner in owners.items() if owner["id"] in changed}
        for sent in group:
            its_project = projects[sent.project]
            owner = owners[its_project.id, sent.experiment]["id"]
            paths = dict.fromkeys(each.file for each in sent.pieces)
            rows = {path: batch.files[owner, path] for path in paths}
            sent.outcome = Taken(
                version=its_project.version + (its_project.id in grown),
                changed=tuple(sorted(changed.get(owner, set()) & set(paths))),
                held=tuple(
                    Held(file=path, size=row["size"], digest=row["digest"]) for path, row in rows.items()
                ),
            )

    def _mark(
        self,
        connection: sa.Connection,
        projects: Mapping[str, _Project],
        owners: Mapping[tuple[int, str], sa.RowMapping],
        changed: Mapping[int, Set[str]],
    ) -> None:
        """Put the versions of projects and experiments up, and when something came."""
        versions = {each.id: each.version for each in projects.values()}
        grown, marked, now = set(), [], time.time()
        for (project_id, _), owner in owners.items():
            version, summarised = owner["version"], owner["summarised"]
            if owner["id"] in changed:
                grown.add(project_id)
                new = versions[project_id] + 1
                if summarised == version and not any(map(is_summarised, changed[owner["id"]])):
                    summarised = new
                version = new
            marked.append({"id": owner["id"], "version": version, "summarised": summarised, "seen": now})
        self._database.update(connection, experiment, marked)
        self._database.update(
            connection, project, [{"id": each, "version": versions[each] + 1} for each in sorted(grown)]
        )


class _Project(NamedTuple):
    """A project that others can't change before the transaction ends."""

    id: int
    version: int


class _Batch:
    """Pieces of experiments, in a transaction. Rows are written at its end, all of a table together.

    Args:
        database: where they go.
        connection: a transaction of it.
        sent: the number of an experiment, its version once it has changed, and pieces of it.
        keep_bytes: as of `Ingest`.

    Attributes:
        files: the row of each file in it, by experiment and path.
    """

    def __init__(
        self,
        database: Database,
        connection: sa.Connection,
        sent: Sequence[tuple[int, int, Sequence[Piece]]],
        *,
        keep_bytes: bool,
    ) -> None:
        self._database = database
        self._connection = connection
        self._sent = sent
        self._versions = {experiment_id: version for experiment_id, version, _ in sent}
        self._keep_bytes = keep_bytes
        self._runs: dict[tuple[int, str], int] = {}
        self._pieces: list[dict[str, Any]] = []
        self._points: dict[tuple[int, str], dict[str, list[Point]]] = {}
        self._rollouts: list[dict[str, Any]] = []
        self._changed: dict[int, set[str]] = {}
        self.files: dict[tuple[int, str], dict[str, Any]] = {}

    def take(self) -> Mapping[int, Set[str]]:
        """Take everything in; the paths of the files that it changed, by experiment."""
        paths = dict.fromkeys((owner, each.file) for owner, _, pieces in self._sent for each in pieces)
        if not paths:
            return {}
        self.files = self._file_rows(list(paths))
        runs = dict.fromkeys((owner, name) for owner, path in paths if (name := _run_of(path)) is not None)
        self._runs = _run_numbers(self._database, self._connection, list(runs))
        for owner, _, pieces in self._sent:
            for each in pieces:
                if is_lines(each.file):
                    self._append(owner, each)
                else:
                    self._replace(owner, each)
        self._write()
        return self._changed

    def _file_rows(self, keys: Sequence[tuple[int, str]]) -> dict[tuple[int, str], dict[str, Any]]:
        """The row of each file, made if there is none."""
        asked = {"experiments": sorted(self._versions), "paths": sorted({path for _, path in keys})}

        def read() -> dict[tuple[int, str], dict[str, Any]]:
            rows = self._connection.execute(_FILES, asked).mappings()
            return {(row["experiment_id"], row["path"]): dict(row) for row in rows}

        found = read()
        missing = [key for key in keys if key not in found]
        if missing:
            if self._keep_bytes:
                self._refuse_in_the_way(missing)
            empty = {"size": 0, "digest": "", "generation": 0, "rest": b""}
            rows = [{"experiment_id": owner, "path": path, **empty} for owner, path in missing]
            self._database.insert(self._connection, file, rows)
            found = read()
        return {key: found[key] for key in keys}

    def _refuse_in_the_way(self, missing: Sequence[tuple[int, str]]) -> None:
        """Refuse a file in whose path another file is, or that is in the path of others: no folder can hold both."""
        for experiment_id in dict.fromkeys(owner for owner, _ in missing):
            query = sa.select(file.c.path).where(file.c.experiment_id == experiment_id)
            paths = set(self._connection.execute(query).scalars())
            folders = {folder for each in paths for folder in _folders(each)}
            for path in (path for owner, path in missing if owner == experiment_id):
                in_the_way = next((folder for folder in _folders(path) if folder in paths), None)
                if in_the_way is None and path in folders:
                    in_the_way = f"{path}/..."
                if in_the_way is not None:
                    raise ConfigError(
                        f"{path} can't be in one record with {in_the_way}: one is a folder of the other"
                    )
                paths.add(path)
                folders.update(_folders(path))

    def _write(self) -> None:
        """Write the rows of everything taken."""
        self._database.insert(self._connection, piece, self._pieces)
        append_points(self._database, self._connection, self._points)
        self._database.insert(self._connection, rollout, self._rollouts)
        kept = ("id", "size", "digest", "generation", "rest")
        changed = [(owner, path) for owner, paths in self._changed.items() for path in sorted(paths)]
        rows = [{name: self.files[key][name] for name in kept} for key in changed]
        self._database.update(self._connection, file, rows)
        runs = {
            self._runs[owner, name]: self._versions[owner]
            for owner, path in changed
            if (name := _run_of(path)) is not None
        }
        self._database.update(
            self._connection, run, [{"id": number, "version": runs[number]} for number in sorted(runs)]
        )

    def _append(self, owner: int, new: Piece) -> None:
        row = self.files[owner, new.file]
        if new.restart and row["size"]:
            self._forget(owner, new.file)
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
        self._add_rows(owner, run_file_of(new.file), unread[:end], start)
        row.update(
            size=row["size"] + len(data),
            digest=digest_of(new.file, data, row["digest"]),
            rest=unread[end:],
        )
        self._changed.setdefault(owner, set()).add(new.file)

    def _replace(self, owner: int, new: Piece) -> None:
        row = self.files[owner, new.file]
        digest = "" if new.gone else digest_of(new.file, new.data)
        if digest == row["digest"]:
            return
        self._forget_pieces(row)
        row.update(size=0, generation=row["generation"] + 1)
        if not new.gone:
            self._keep(row, new.data)
        row.update(size=len(new.data), digest=digest)
        self._changed.setdefault(owner, set()).add(new.file)

    def _keep(self, row: Mapping[str, Any], data: bytes) -> None:
        if self._keep_bytes:
            kept = {"file_id": row["id"], "place": row["size"], "data": zlib.compress(data, 3)}
            self._pieces.append(kept)

    def _forget_pieces(self, row: Mapping[str, Any]) -> None:
        self._pieces = [kept for kept in self._pieces if kept["file_id"] != row["id"]]
        self._connection.execute(sa.delete(piece).where(piece.c.file_id == row["id"]))

    def _forget(self, owner: int, path: str) -> None:
        """Begin a file again: its writer lost bytes sent before, as a power cut may do."""
        row = self.files[owner, path]
        self._forget_pieces(row)
        what = run_file_of(path)
        if what is not None:
            run_id = self._runs[owner, what.run]
            if what.holds == "metrics":
                self._points.pop((run_id, what.phase), None)
            else:
                of_run = (run_id, what.phase)
                self._rollouts = [
                    kept for kept in self._rollouts if (kept["run_id"], kept["phase"]) != of_run
                ]
            table = series if what.holds == "metrics" else rollout
            of_file = (table.c.run_id == run_id) & (table.c.phase == what.phase)
            self._connection.execute(sa.delete(table).where(of_file))
        row.update(size=0, digest="", rest=b"", generation=row["generation"] + 1)
        self._changed.setdefault(owner, set()).add(path)

    def _add_rows(self, owner: int, what: RunFile | None, data: bytes, start: int) -> None:
        if what is None or not data:
            return
        run_id = self._runs[owner, what.run]
        if what.holds == "metrics":
            by_name = self._points.setdefault((run_id, what.phase), {})
            for _, line in whole_lines(data):
                for point in points_of(line):
                    by_name.setdefault(point.name, []).append(point)
            return
        self._rollouts += (
            {"run_id": run_id, "phase": what.phase, "place": start + place, **row}
            for place, line in whole_lines(data)
            if (row := rollout_row(line)) is not None
        )


def _folders(path: str) -> Iterator[str]:
    """The folders that a file is in, from the record's own on."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _run_of(path: str) -> str | None:
    """The run that a file is of."""
    return path.split("/")[1] if path.startswith("runs/") and path.count("/") > 1 else None


def _run_numbers(
    database: Database, connection: sa.Connection, keys: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    """The number of each run, made if there is none, by its experiment and name."""
    if not keys:
        return {}
    owners, names = zip(*keys, strict=True)
    asked = {"experiments": sorted(set(owners)), "names": sorted(set(names))}

    def read() -> dict[tuple[int, str], int]:
        return {(row.experiment_id, row.name): row.id for row in connection.execute(_RUNS, asked)}

    found = read()
    missing = [key for key in keys if key not in found]
    if missing:
        rows = [{"experiment_id": owner, "name": name, "version": 0} for owner, name in missing]
        database.insert(connection, run, rows)
        found = read()
    return found


def _project(connection: sa.Connection, name: str) -> _Project:
    """A project, made if there is none, and locked."""
    found = connection.execute(_PROJECT, {"name": name}).one_or_none()
    if found is None:
        insert_once(connection, project, {"name": name, "version": 0})
        found = connection.execute(_PROJECT, {"name": name}).one()
    return _Project(*found)


def _experiments(
    connection: sa.Connection, keys: Collection[tuple[int, str]]
) -> dict[tuple[int, str], sa.RowMapping]:
    """The row of each experiment, made if there is none, by its project and name."""
    owners, names = zip(*keys, strict=True)
    asked = {"projects": sorted(set(owners)), "names": sorted(set(names))}

    def read() -> dict[tuple[int, str], sa.RowMapping]:
        rows = connection.execute(_EXPERIMENTS, asked).mappings()
        return {(row["project_id"], row["name"]): row for row in rows}

    found = read()
    missing = [key for key in keys if key not in found]
    if missing:
        for project_id, name in missing:
            insert_once(connection, experiment, {"project_id": project_id, "name": name})
        found = read()
    return {key: found[key] for key in keys}
