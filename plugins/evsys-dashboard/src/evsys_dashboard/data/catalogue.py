"""The names and versions of datasets and benchmarks, what they were made from, and who read those of tests."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import attrs
import sqlalchemy as sa

from evsys.errors import ConfigError, DataError
from evsys_dashboard.data.blobs import Blobs
from evsys_dashboard.data.shapes import (
    CHUNK,
    BlobState,
    Catalogue,
    DataName,
    DataVersion,
    Kind,
    ShownVersion,
    Split,
    Uploaded,
    Use,
    Versions,
    is_id,
    name_of,
    noun,
    refuse_odd_name,
    version_id,
)
from evsys_dashboard.ingest.pieces import refuse_odd_project
from evsys_dashboard.store.database import Database, clean, insert_once
from evsys_dashboard.store.summaries import DATA_LABEL, data_label
from evsys_dashboard.store.tables import (
    blob,
    chunk,
    data_name,
    data_origin,
    data_read,
    data_version,
    experiment,
    label,
    project,
)
from evsys_record.encoding import now

__all__ = ["DataStore", "Found"]

MOST_ORIGINS = 100
MOST_NAMES = 10_000
VISIT_SECONDS = 24 * 3600.0
"""Within so long after its first chunk, later ones belong to the same pull."""


@attrs.frozen(kw_only=True)
class Found:
    """A version, and where its bytes are."""

    version: DataVersion
    blob_id: int
    latest: str


class DataStore:
    """The datasets and benchmarks of all projects in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blobs = Blobs(database)

    # --- upload ---

    def begin(self, project_name: str, digest: str, size: int) -> BlobState:
        """Begin to take the bytes of a version in, or continue; see `Blobs.begin`."""
        return self.blobs.begin(self._project_id(project_name, make=True), digest, size)

    def take(self, project_name: str, digest: str, number: int, packed: bytes) -> BlobState:
        """Take a chunk in; see `Blobs.take`."""
        return self.blobs.take(self._project_id(project_name, make=True), digest, number, packed)

    def add(
        self,
        project_name: str,
        kind: Kind,
        name: str,
        digest: str,
        *,
        split: Split | None = None,
        made_from: Collection[str] = (),
        note: str | None = None,
        file: str | None = None,
        key: str | None = None,
    ) -> Uploaded:
        """Make a version of bytes that were sent. With bytes that the name has, nothing is made but a test set of them.

        Args:
            project_name: whose it is.
            kind: what it is.
            name: what it is called.
            digest: SHA-256 of its bytes.
            split: `test` seals the bytes, under every name of the project, for good.
            made_from: IDs of the versions that it was made from.
            note: what to know about it.
            file: the name of the file that it came from.
            key: the printable part of the key used.

        Raises:
            ConfigError: the name can't be one, an origin is unknown, or the bytes aren't there or aren't rows.
        """
        refuse_odd_name(name)
        if len(made_from) > MOST_ORIGINS:
            raise ConfigError(f"a version is made from at most {MOST_ORIGINS} others")
        project_id = self._project_id(project_name, make=True)
        blob_id = self.blobs.complete(project_id, digest)
        with self._database.writing() as connection:
            connection.execute(sa.select(project.c.id).where(project.c.id == project_id).with_for_update())
            origins = [_origin(connection, project_id, ref) for ref in dict.fromkeys(made_from)]
            if split == "test":
                connection.execute(sa.update(blob).where(blob.c.id == blob_id).values(sealed=True))
            name_id = _name_id(connection, project_id, kind, name)
            same = (data_version.c.data_name_id == name_id) & (data_version.c.blob_id == blob_id)
            existed = connection.execute(sa.select(data_version.c.id).where(same)).first() is not None
            if not existed:
                row = {
                    "data_name_id": name_id,
                    "blob_id": blob_id,
                    "ref": version_id(name, digest),
                    "key": key,
                    "number": _next_number(connection, name_id),
                    "created": now(),
                    "note": None if note is None else clean(note),
                    "file": None if file is None else clean(file),
                }
                _insert_version(connection, row, origins)
        found = self.find(project_name, kind, version_id(name, digest))
        return Uploaded(version=found.version, latest=found.latest, existed=existed)

    # --- questions ---

    def find(self, project_name: str, kind: Kind, ref: str) -> Found:
        """The version of an ID, or the latest one of a name.

        Raises:
            DataError: there is none; the hint names one that is spelt like it.
        """
        project_id = self._project_id(project_name)
        with self._database.reading() as connection:
            name = name_of(ref) if is_id(ref) else ref
            versions = _versions(connection, project_id, kind, data_name.c.name == clean(name))
            wanted = [each for each in versions if each[0].id == ref] if is_id(ref) else versions[:1]
            if not wanted:
                raise _unknown(connection, project_id, kind, ref, [each.id for each, _ in versions])
        version, blob_id = wanted[0]
        return Found(version=version, blob_id=blob_id, latest=versions[0][0].id)

    def catalogue(
        self, project_name: str, kind: Kind, *, text: str = "", limit: int = 200, offset: int = 0
    ) -> Catalogue:
        """The names of a project."""
        project_id = self._project_id(project_name)
        like = data_name.c.name.icontains(clean(text), autoescape=True)
        mine = (data_name.c.project_id == project_id) & (data_name.c.kind == kind) & like
        newest = sa.func.max(data_version.c.number)
        listed = (
            sa.select(
                data_name.c.id, data_name.c.name, sa.func.count().label("versions"), newest.label("newest")
            )
            .join(data_version, data_version.c.data_name_id == data_name.c.id)
            .where(mine)
            .group_by(data_name.c.id, data_name.c.name)
            .order_by(data_name.c.name)
        )
        with self._database.reading() as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(listed.subquery())).scalar_one()
            rows = connection.execute(listed.limit(limit).offset(offset)).all()
            latest = _latest_of(connection, project_id, kind, [row.name for row in rows])
        names = [DataName(name=row.name, versions=row.versions, latest=latest[row.name]) for row in rows]
        return Catalogue(kind=kind, total=total, names=tuple(names))

    def versions(self, project_name: str, kind: Kind, name: str) -> Versions:
        """Every version of a name.

        Raises:
            DataError: there is none.
        """
        project_id = self._project_id(project_name)
        with self._database.reading() as connection:
            found = _versions(connection, project_id, kind, data_name.c.name == clean(name))
            if not found:
                raise _unknown(connection, project_id, kind, name, ())
        return Versions(kind=kind, name=name, versions=tuple(version for version, _ in found))

    def show(self, project_name: str, found: Found, *, readable: bool) -> ShownVersion:
        """A version with its lineage."""
        version = found.version
        into = (
            sa.select(data_version.c.ref)
            .join(data_origin, data_origin.c.data_version_id == data_version.c.id)
            .where(data_origin.c.origin_id.in_(_of_ref(self._project_id(project_name), version)))
            .order_by(data_version.c.id)
        )
        used = (
            sa.select(experiment.c.name, experiment.c.verdict, experiment.c.moment)
            .join(label, label.c.experiment_id == experiment.c.id)
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == project_name, label.c.kind == DATA_LABEL, experiment.c.dry.is_(False))
            .where(label.c.value == data_label(version.kind, version.id))
            .order_by(experiment.c.moment, experiment.c.name)
        )
        chunks = sa.select(chunk.c.digest).where(chunk.c.blob_id == found.blob_id).order_by(chunk.c.number)
        with self._database.reading() as connection:
            return ShownVersion(
                version=version,
                latest=found.latest,
                made_into=tuple(connection.execute(into).scalars()),
                used_by=tuple(
                    Use(experiment=row.name, verdict=row.verdict, moment=row.moment or "")
                    for row in connection.execute(used)
                ),
                reads=_reads(connection, found.blob_id) if version.split == "test" else None,
                readable=readable,
                chunk_bytes=CHUNK,
                chunks=tuple(connection.execute(chunks).scalars()),
            )

    def count_read(self, found: Found, *, key: str | None, how: str) -> int | None:
        """Count that the rows of a test set are read; how often they were before, None if this belongs to a pull that is counted."""
        mine = (data_read.c.blob_id == found.blob_id) & (
            data_read.c.key.is_(None) if key is None else data_read.c.key == key
        )
        recent = sa.select(data_read.c.id).where(
            mine, data_read.c.how == "pull", data_read.c.at > time.time() - VISIT_SECONDS
        )
        with self._database.writing() as connection:
            if how == "chunk":
                if connection.execute(recent.limit(1)).first() is not None:
                    return None
                how = "pull"
            before = _reads(connection, found.blob_id)
            row = {"blob_id": found.blob_id, "at": time.time(), "key": key, "how": how}
            connection.execute(sa.insert(data_read).values(row))
        return before

    def reads_of_tests(self, project_name: str) -> Mapping[str, int]:
        """How often the rows of each benchmark's sealed versions were read, by name."""
        query = (
            sa.select(data_name.c.name, sa.func.count(data_read.c.id.distinct()))
            .join(data_version, data_version.c.data_name_id == data_name.c.id)
            .join(blob, blob.c.id == data_version.c.blob_id)
            .join(data_read, data_read.c.blob_id == blob.c.id)
            .where(data_name.c.project_id == self._project_id(project_name), blob.c.sealed)
            .group_by(data_name.c.name)
            .order_by(data_name.c.name)
        )
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def _project_id(self, name: str, *, make: bool = False) -> int:
        """The number of a project.

        Raises:
            ConfigError: it can't be one.
            DataError: there is none.
        """
        query = sa.select(project.c.id).where(project.c.name == clean(name))
        with self._database.reading() as connection:
            found: int | None = connection.execute(query).scalar()
        if found is not None:
            return found
        if not make:
            raise DataError(f"no project is called {name!r}")
        refuse_odd_project(name)
        with self._database.writing() as connection:
            insert_once(connection, project, {"name": name, "version": 0})
        return self._project_id(name)


def _of_ref(project_id: int, version: DataVersion) -> sa.Select[tuple[int]]:
    """The number of a version."""
    return (
        sa.select(data_version.c.id)
        .join(data_name, data_name.c.id == data_version.c.data_name_id)
        .where(data_name.c.project_id == project_id, data_name.c.kind == version.kind)
        .where(data_name.c.name == version.name, data_version.c.number == version.number)
    )


def _versions(
    connection: sa.Connection, project_id: int, kind: Kind, which: sa.ColumnElement[bool]
) -> list[tuple[DataVersion, int]]:
    """Versions with their bytes, the newest first of each name."""
    query = (
        sa.select(
            data_version,
            data_name.c.name,
            blob.c.digest,
            blob.c.size,
            blob.c.rows,
            blob.c.sealed,
        )
        .join(data_name, data_name.c.id == data_version.c.data_name_id)
        .join(blob, blob.c.id == data_version.c.blob_id)
        .where(data_name.c.project_id == project_id, data_name.c.kind == kind, which)
        .order_by(data_name.c.name, data_version.c.number.desc())
    )
    rows = connection.execute(query).mappings().all()
    origins = _origins(connection, [row["id"] for row in rows])
    return [(_version(row, kind, origins.get(row["id"], ())), row["blob_id"]) for row in rows]


def _version(row: sa.RowMapping, kind: Kind, made_from: Sequence[str]) -> DataVersion:
    split: Split | None = "test" if row["sealed"] else ("val" if kind == "benchmarks" else None)
    return DataVersion(
        id=row["ref"],
        kind=kind,
        split=split,
        content_hash=f"sha256:{row['digest']}",
        made_from=tuple(made_from),
        **{each: row[each] for each in ("name", "number", "size", "rows", "created", "key", "note", "file")},
    )


def _origins(connection: sa.Connection, versions: Sequence[int]) -> dict[int, list[str]]:
    query = (
        sa.select(data_origin.c.data_version_id, data_version.c.ref)
        .join(data_version, data_version.c.id == data_origin.c.origin_id)
        .where(data_origin.c.data_version_id.in_(versions))
        .order_by(data_version.c.id)
    )
    found: dict[int, list[str]] = {}
    for version, ref in connection.execute(query):
        found.setdefault(version, []).append(ref)
    return found


def _latest_of(
    connection: sa.Connection, project_id: int, kind: Kind, names: Collection[str]
) -> dict[str, DataVersion]:
    """The newest version of each of these names."""
    others = data_version.alias()
    newest = (
        sa.select(sa.func.max(others.c.number))
        .where(others.c.data_name_id == data_version.c.data_name_id)
        .scalar_subquery()
    )
    which = data_name.c.name.in_(names) & (data_version.c.number == newest)
    return {version.name: version for version, _ in _versions(connection, project_id, kind, which)}


def _origin(connection: sa.Connection, project_id: int, ref: str) -> int:
    """The number of a version of either kind.

    Raises:
        ConfigError: there is none with this ID.
    """
    query = (
        sa.select(data_version.c.id)
        .join(data_name, data_name.c.id == data_version.c.data_name_id)
        .where(data_name.c.project_id == project_id, data_version.c.ref == clean(ref))
        .order_by(data_name.c.kind.desc())
        .limit(1)
    )
    found: int | None = connection.execute(query).scalar()
    if found is None:
        known = (
            sa.select(data_version.c.ref)
            .join(data_name, data_name.c.id == data_version.c.data_name_id)
            .where(data_name.c.project_id == project_id)
            .order_by(data_version.c.id.desc())
            .limit(MOST_NAMES)
        )
        raise ConfigError(
            f"no version has the ID {ref!r}", hint=_near(ref, connection.execute(known).scalars())
        )
    return found


def _name_id(connection: sa.Connection, project_id: int, kind: Kind, name: str) -> int:
    key = (data_name.c.project_id == project_id) & (data_name.c.kind == kind)
    query = sa.select(data_name.c.id).where(key, data_name.c.name == name)
    found: int | None = connection.execute(query).scalar()
    if found is not None:
        return found
    count = connection.execute(sa.select(sa.func.count()).select_from(data_name).where(key)).scalar_one()
    if count >= MOST_NAMES:
        raise ConfigError(f"the project has {count} {kind}, and no more are taken")
    row = {"project_id": project_id, "kind": kind, "name": name}
    return int(connection.execute(sa.insert(data_name).values(row).returning(data_name.c.id)).scalar_one())


def _next_number(connection: sa.Connection, name_id: int) -> int:
    query = sa.select(sa.func.max(data_version.c.number)).where(data_version.c.data_name_id == name_id)
    return (connection.execute(query).scalar() or 0) + 1


def _insert_version(connection: sa.Connection, row: Mapping[str, Any], origins: Sequence[int]) -> None:
    version = connection.execute(
        sa.insert(data_version).values(row).returning(data_version.c.id)
    ).scalar_one()
    if origins:
        rows = [{"data_version_id": version, "origin_id": each} for each in origins]
        connection.execute(sa.insert(data_origin), rows)


def _reads(connection: sa.Connection, blob_id: int) -> int:
    query = sa.select(sa.func.count()).select_from(data_read).where(data_read.c.blob_id == blob_id)
    return int(connection.execute(query).scalar_one())


def _unknown(
    connection: sa.Connection, project_id: int, kind: Kind, ref: str, versions: Sequence[str]
) -> DataError:
    if versions:
        return DataError(f"{noun(kind)} {name_of(ref)!r} has no version {ref!r}", hint=_near(ref, versions))
    query = (
        sa.select(data_name.c.name)
        .where(data_name.c.project_id == project_id, data_name.c.kind == kind)
        .order_by(data_name.c.name)
        .limit(MOST_NAMES)
    )
    names = connection.execute(query).scalars().all()
    return DataError(f"no {noun(kind)} {ref!r}", hint=_near(name_of(ref) if is_id(ref) else ref, names))


def _near(ref: str, known: Iterable[str]) -> str:
    """The names most like one, or the first ones."""
    listed = list(known)
    near = get_close_matches(ref, listed, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = ", ..." if len(listed) > 8 else ""
    return f"known: {', '.join(listed[:8])}{more}" if listed else "none was uploaded yet"
