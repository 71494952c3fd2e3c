"""Bytes of datasets and benchmarks: taken in by chunks, checked as a whole, and read back in parts."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NoReturn

import attrs
import sqlalchemy as sa

from evsys.errors import ConfigError
from evsys_dashboard.data.chunks import chunk_bytes, lines_of, unpack_chunk
from evsys_dashboard.data.shapes import CHUNK, MOST_BYTES, BlobState, Row, is_digest
from evsys_dashboard.store.database import Database, insert_once
from evsys_dashboard.store.tables import blob, chunk
from evsys_record.encoding import encode_record, utf8

__all__ = ["MOST_PENDING", "Blobs"]

MOST_PENDING = 16
"""Uploads of a project that may be incomplete at a time."""

ABANDONED_SECONDS = 7 * 24 * 3600.0
"""An upload of which nothing came for so long makes room for another."""

_LONGEST_LISTED = 1 << 18
"""Bytes of a row that is listed whole."""

_MOST_LISTED = 2 << 20
"""Bytes of the rows of an answer, but for the last one."""

_BEGINNING = 20_000
"""Characters shown of a row that is too long."""


@attrs.frozen(kw_only=True)
class _Checked:
    """A whole file: its number of rows, and of each chunk its digest and the row that its first byte belongs to."""

    rows: int
    chunks: tuple[tuple[str, int], ...]


class Blobs:
    """The bytes that a database holds, by project and hash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, project_id: int, digest: str, size: int) -> BlobState:
        """Begin to take bytes in, or continue: what of them is there.

        Raises:
            ConfigError: the hash isn't one, there are too many bytes, or too many uploads are incomplete.
        """
        _refuse_odd_digest(digest)
        if not 0 < size <= MOST_BYTES:
            raise ConfigError(
                f"{size} bytes can't be taken, at most {MOST_BYTES}", hint="divide the rows among several"
            )
        key = {"project_id": project_id, "digest": digest}
        with self._database.writing() as connection:
            found = _blob(connection, project_id, digest)
            if found is None:
                _make_room(connection, project_id)
                row = {**key, "size": size, "sealed": False, "seen": time.time()}
                insert_once(connection, blob, row)
                found = _blob(connection, project_id, digest)
            if found is None or found["size"] != size:
                raise ConfigError("bytes of this hash are held, and have another size")
            return _state(connection, found)

    def take(self, project_id: int, digest: str, number: int, packed: bytes) -> BlobState:
        """Take a chunk in. One that is there stays as it is.

        Raises:
            ConfigError: nothing of this hash was begun, or the chunk can't be one of it.
        """
        _refuse_odd_digest(digest)
        with self._database.reading() as connection:
            found = _blob(connection, project_id, digest)
        if found is None:
            raise ConfigError("no upload of this hash was begun")
        data = unpack_chunk(packed, chunk_bytes(found["size"], number))
        row = {
            "blob_id": found["id"],
            "number": number,
            "digest": hashlib.sha256(data).hexdigest(),
            "data": packed,
        }
        with self._database.writing() as connection:
            there = sa.select(chunk.c.number).where(chunk.c.blob_id == found["id"], chunk.c.number == number)
            locked = sa.select(blob.c.id).where(blob.c.id == found["id"]).with_for_update()
            if connection.execute(locked).first() is None:
                raise ConfigError("no upload of this hash was begun")
            if connection.execute(there).first() is None:
                connection.execute(sa.insert(chunk).values(row))
                connection.execute(sa.update(blob).where(blob.c.id == found["id"]).values(seen=time.time()))
            return _state(connection, found)

    def complete(self, project_id: int, digest: str) -> int:
        """Check that everything is there and holds rows; the number of the bytes in the database.

        Raises:
            ConfigError: a chunk is missing, a line isn't a row, or the bytes have another hash: then all are forgotten.
        """
        _refuse_odd_digest(digest)
        with self._database.reading() as connection:
            found = _blob(connection, project_id, digest)
            if found is None:
                raise ConfigError("no upload of this hash was begun")
            if found["rows"] is not None:
                return int(found["id"])
            last = (found["size"] - 1) // CHUNK
            missing = set(range(last + 1)) - set(_state(connection, found).received)
            if missing:
                raise ConfigError(f"{len(missing)} of {last + 1} chunks are missing", hint="send them first")
            try:
                checked = _check(connection, found)
            except ConfigError as exc:
                problem: ConfigError | None = exc
            else:
                problem = None
        if problem is not None:
            self._forget(found["id"], problem)
        rows = [{"number": number, "first_row": first} for number, (_, first) in enumerate(checked.chunks)]
        with self._database.writing() as connection:
            query = sa.select(chunk.c.digest).where(chunk.c.blob_id == found["id"]).order_by(chunk.c.number)
            if tuple(connection.execute(query).scalars()) != tuple(each for each, _ in checked.chunks):
                raise ConfigError("the chunks changed while they were checked", hint="try again")
            changed = sa.update(chunk).where(
                chunk.c.blob_id == found["id"], chunk.c.number == sa.bindparam("the_number")
            )
            connection.execute(
                changed.values(first_row=sa.bindparam("the_row")),
                [{"the_number": row["number"], "the_row": row["first_row"]} for row in rows],
            )
            connection.execute(sa.update(blob).where(blob.c.id == found["id"]).values(rows=checked.rows))
        return int(found["id"])

    def _forget(self, blob_id: int, problem: ConfigError) -> NoReturn:
        with self._database.writing() as connection:
            connection.execute(sa.delete(blob).where(blob.c.id == blob_id, blob.c.rows.is_(None)))
        raise problem

    def packed(self, blob_id: int, number: int) -> bytes | None:
        """A chunk as it is kept; None if there is none of this number."""
        query = sa.select(chunk.c.data).where(chunk.c.blob_id == blob_id, chunk.c.number == number)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else bytes(found)

    def lines(self, blob_id: int, first: int = 0) -> Generator[bytes]:
        """The lines from one on. Use it up, or close it: it holds a connection."""
        # The last chunk before which the row hasn't begun: its first byte belongs to an earlier one.
        before = (
            sa.select(chunk.c.number, chunk.c.first_row)
            .where(chunk.c.blob_id == blob_id, sa.or_(chunk.c.first_row < first, chunk.c.number == 0))
            .order_by(chunk.c.number.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            number, row = connection.execute(before).one()
            for place, line in enumerate(lines_of(_parts(connection, blob_id, number)), start=row):
                if place >= first:
                    yield line

    def page(self, blob_id: int, total: int, first: int, limit: int) -> tuple[list[Row], int | None]:
        """Rows from one on, and where the next page begins. Fewer than `limit` if they are long."""
        found: list[Row] = []
        size = 0
        if first >= total:
            return found, None
        with closing(self.lines(blob_id, first)) as lines:
            for number, line in enumerate(lines, start=first):
                found.append(_list_row(number, line))
                size += min(len(line), _LONGEST_LISTED)
                if len(found) >= limit or size >= _MOST_LISTED:
                    break
        after = first + len(found)
        return found, after if found and after < total else None


def _refuse_odd_digest(digest: str) -> None:
    if not is_digest(digest):
        raise ConfigError(f"{digest[:80]!r} is not a SHA-256 in hexadecimal digits")


def _list_row(number: int, line: bytes) -> Row:
    if len(line) > _LONGEST_LISTED:
        return Row(
            number=number, row=None, text=line[: 4 * _BEGINNING].decode("utf-8", "replace")[:_BEGINNING]
        )
    return Row(number=number, row=json.loads(line), text=None)


def _blob(connection: sa.Connection, project_id: int, digest: str) -> sa.RowMapping | None:
    query = sa.select(blob).where(blob.c.project_id == project_id, blob.c.digest == digest)
    return connection.execute(query).mappings().one_or_none()


def _state(connection: sa.Connection, found: sa.RowMapping) -> BlobState:
    query = sa.select(chunk.c.number).where(chunk.c.blob_id == found["id"]).order_by(chunk.c.number)
    return BlobState(
        digest=found["digest"],
        chunk_bytes=CHUNK,
        received=tuple(connection.execute(query).scalars()),
        complete=found["rows"] is not None,
    )


def _make_room(connection: sa.Connection, project_id: int) -> None:
    """Forget abandoned uploads of a project.

    Raises:
        ConfigError: too many others are incomplete.
    """
    pending = (blob.c.project_id == project_id) & blob.c.rows.is_(None)
    abandoned = time.time() - ABANDONED_SECONDS
    connection.execute(sa.delete(blob).where(pending, blob.c.seen < abandoned))
    count = connection.execute(sa.select(sa.func.count()).select_from(blob).where(pending)).scalar_one()
    if count >= MOST_PENDING:
        raise ConfigError(
            f"{count} uploads of the project are incomplete",
            hint="complete one of them, or wait: the server forgets those of which nothing came for a week",
        )


def _parts(connection: sa.Connection, blob_id: int, number: int) -> Iterator[bytes]:
    """The bytes from a chunk on, one chunk at a time."""
    while True:
        query = sa.select(chunk.c.data).where(chunk.c.blob_id == blob_id, chunk.c.number == number)
        found = connection.execute(query).scalar()
        if found is None:
            return
        yield zlib.decompress(found)
        number += 1


def _check(connection: sa.Connection, found: sa.RowMapping) -> _Checked:
    """Read everything once.

    Raises:
        ConfigError: the hash is another, or a line isn't a row.
    """
    whole, ends, chunks = hashlib.sha256(), 0, list[tuple[str, int]]()

    def parts() -> Iterator[bytes]:
        nonlocal ends
        for part in _parts(connection, found["id"], 0):
            whole.update(part)
            chunks.append((hashlib.sha256(part).hexdigest(), ends))
            ends += part.count(b"\n")
            yield part

    rows, problem = 0, None
    for rows, line in enumerate(lines_of(parts()), start=1):
        problem = problem or _problem(rows, line)
    if whole.hexdigest() != found["digest"]:
        raise ConfigError("the bytes that came have another hash", hint="upload them again")
    if problem is not None:
        raise ConfigError(problem)
    return _Checked(rows=rows, chunks=tuple(chunks))


def _problem(number: int, line: bytes) -> str | None:
    """The reason that a line isn't a row as evsys writes rows: then the same rows always are the same bytes."""
    try:
        row = json.loads(line)
        written = utf8(encode_record(row))
    except (ValueError, RecursionError) as exc:
        return f"line {number} isn't JSON: {exc}"
    if not isinstance(row, dict):
        return f"line {number} is a JSON {type(row).__name__}, expected an object"
    return None if written == line else f"line {number} isn't written as `evsys dataset upload` writes rows"
