"""Scored rollouts by their ingredients: one SQLite file in a project's cache.

```
<cache>/results/results.sqlite      scorings: their ingredients, whose run made them, when they were last used
                                    rollouts: of each scoring, by the place and content of their task and the sample index
```

Any number of processes may read and write at once. An entry is whole or absent. Beyond `most_bytes` the least
recently used evaluations are evicted.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from evsys.errors import StoreError
from evsys_record import make_directory
from evsys_record.encoding import encode_record, utf8

__all__ = ["MOST_BYTES", "ResultStore", "StoreInfo", "StoredEvaluation", "StoredRollout"]

MOST_BYTES = 512 * 2**20
"""Size beyond which the oldest scorings go; what is left is four fifths of it."""

_FORMAT = 1
_PAUSE_SECONDS = 0.01
_WAIT_SECONDS = 5.0
_COMPRESSION = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS scorings (
    id TEXT PRIMARY KEY, benchmark TEXT NOT NULL, ingredients TEXT NOT NULL, run TEXT NOT NULL,
    created REAL NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL DEFAULT 0, rollouts INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS rollouts (
    scoring TEXT NOT NULL REFERENCES scorings(id), key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (scoring, key)
);
"""


class StoredRollout(NamedTuple):
    """A rollout as JSON text, under the key that it has within its scoring."""

    key: str
    text: str


@attrs.frozen(kw_only=True)
class StoredEvaluation:
    """A scoring that has rollouts here; `created` in seconds since 1970, `run` is the folder of the run that made it."""

    id: str
    benchmark: str
    ingredients: Mapping[str, Any]
    run: str
    created: float
    rollouts: int


@attrs.frozen(kw_only=True)
class StoreInfo:
    """How much is kept."""

    path: str
    scorings: int
    rollouts: int
    size: int
    most_bytes: int


class ResultStore:
    """The file of one project's results.

    Args:
        directory: its folder, made when something is kept.
        most_bytes: how large the rollouts in it may become.
    """

    def __init__(self, directory: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = directory / "results.sqlite"
        self._most_bytes = most_bytes

    def rollouts(self, scoring: str) -> dict[str, dict[str, Any]]:
        """The rollouts of a scoring by key; empty where it isn't known.

        Raises:
            StoreError: the file can't be read.
        """
        if not self.path.exists():
            return {}
        with self._open(transaction=False) as database:
            rows = database.execute("SELECT key, body FROM rollouts WHERE scoring = ?", (scoring,)).fetchall()
            if rows:
                database.execute("UPDATE scorings SET used = ? WHERE id = ?", (time.time(), scoring))
            return {key: json.loads(zlib.decompress(body)) for key, body in rows}

    def maker(self, scoring: str) -> str | None:
        """The folder of the run that began to keep a scoring; None where it isn't known.

        Raises:
            StoreError: the file can't be read.
        """
        if not self.path.exists():
            return None
        with self._open(transaction=False) as database:
            row = database.execute("SELECT run FROM scorings WHERE id = ?", (scoring,)).fetchone()
            return None if row is None else str(row[0])

    def keep(
        self,
        scoring: str,
        rollouts: Iterable[StoredRollout],
        *,
        benchmark: str,
        ingredients: Mapping[str, Any],
        run: str,
    ) -> None:
        """Add rollouts to a scoring; those that it has stay as they are.

        Args:
            scoring: its id, the hash of its ingredients.
            rollouts: what is added.
            benchmark: the entry's name, by which similar scorings are found.
            ingredients: all that decided the results.
            run: the folder of the run that made them.

        Raises:
            StoreError: the file can't be written.
        """
        packed = [(scoring, one.key, zlib.compress(utf8(one.text), _COMPRESSION)) for one in rollouts]
        now = time.time()
        with self._open() as database:
            database.execute(
                "INSERT INTO scorings (id, benchmark, ingredients, run, created, used) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET used = excluded.used",
                (scoring, benchmark, encode_record(ingredients), run, now, now),
            )
            database.executemany(
                "INSERT OR IGNORE INTO rollouts (scoring, key, body) VALUES (?, ?, ?)", packed
            )
            database.execute(
                "UPDATE scorings SET (rollouts, size) = "
                "(SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0) FROM rollouts WHERE scoring = id) WHERE id = ?",
                (scoring,),
            )
            self._make_room(database, scoring)

    def known(self, benchmark: str, *, limit: int = 200) -> list[StoredEvaluation]:
        """The last scorings of an entry of this name, the newest first.

        Raises:
            StoreError: the file can't be read.
        """
        if not self.path.exists():
            return []
        with self._open(transaction=False) as database:
            rows = database.execute(
                "SELECT id, benchmark, ingredients, run, created, rollouts FROM scorings WHERE benchmark = ? AND rollouts > 0 "
                "ORDER BY created DESC LIMIT ?",
                (benchmark, limit),
            ).fetchall()
        return [
            StoredEvaluation(
                id=row[0],
                benchmark=row[1],
                ingredients=json.loads(row[2]),
                run=row[3],
                created=row[4],
                rollouts=row[5],
            )
            for row in rows
        ]

    def info(self) -> StoreInfo:
        """How much is kept.

        Raises:
            StoreError: the file can't be read.
        """
        counts = (0, 0, 0)
        if self.path.exists():
            with self._open(transaction=False) as database:
                counts = database.execute(
                    "SELECT COUNT(*), COALESCE(SUM(rollouts), 0), COALESCE(SUM(size), 0) FROM scorings"
                ).fetchone()
        return StoreInfo(
            path=str(self.path),
            scorings=counts[0],
            rollouts=counts[1],
            size=counts[2],
            most_bytes=self._most_bytes,
        )

    def clear(self) -> int:
        """Forget everything; returns how many rollouts there were. A damaged file goes, and counts as 0.

        Raises:
            StoreError: the file can't be written.
        """
        if not self.path.exists():
            return 0
        try:
            return self._free_space()
        except StoreError as exc:
            # Busy, full or read-only: the file may be whole.
            if isinstance(exc.__cause__, sqlite3.OperationalError):
                raise
            for path in self.path.parent.glob(f"{self.path.name}*"):
                path.unlink(missing_ok=True)
            return 0

    def _free_space(self) -> int:
        with self._open() as database:
            gone = database.execute("DELETE FROM rollouts").rowcount
            database.execute("DELETE FROM scorings")
        with self._open(transaction=False) as database:
            database.execute("VACUUM")
        return gone

    def _make_room(self, database: sqlite3.Connection, writing: str) -> None:
        """Let the least recently used evaluations go, but for the one that is being written."""
        [total] = database.execute("SELECT COALESCE(SUM(size), 0) FROM scorings").fetchone()
        if total <= self._most_bytes:
            return
        oldest = database.execute(
            "SELECT id, size FROM scorings WHERE id != ? ORDER BY used", (writing,)
        ).fetchall()
        for scoring, size in oldest:
            if total <= self._most_bytes * 4 // 5:
                return
            database.execute("DELETE FROM rollouts WHERE scoring = ?", (scoring,))
            database.execute("DELETE FROM scorings WHERE id = ?", (scoring,))
            total -= size

    @contextmanager
    def _open(self, *, transaction: bool = True) -> Iterator[sqlite3.Connection]:
        """A connection, and a transaction that is whole or nothing; every trouble with the file is a `StoreError`."""
        make_directory(self.path.parent)
        database: sqlite3.Connection | None = None
        try:
            database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            # Without a sync at each write: what a power cut takes from a cache is made again.
            _write_ahead(database)
            database.execute("PRAGMA synchronous = NORMAL")
            self._prepare(database)
            if not transaction:
                yield database
                return
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        except (sqlite3.Error, zlib.error, ValueError) as exc:
            raise StoreError(
                f"the result cache {self.path} can't be used: {exc}",
                hint="`evsys cache clear` makes a new one; --no-cache does without it",
                path=str(self.path),
            ) from exc
        finally:
            if database is not None:
                database.close()

    def _prepare(self, database: sqlite3.Connection) -> None:
        [found] = database.execute("PRAGMA user_version").fetchone()
        if found == _FORMAT:
            return
        if found != 0:
            raise ValueError(f"it has format {found}, this evsys reads {_FORMAT}")
        database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")


def _write_ahead(database: sqlite3.Connection) -> None:
    """Turn the write-ahead log on. SQLite doesn't wait for another connection that does the same, regardless of its
    timeout.
    """
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
