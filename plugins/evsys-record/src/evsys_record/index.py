"""The index of past experiments: a SQLite file that is a copy of what the record's files say, and never more than
that.

No record depends on it. Who asks for the history, or whether a run was there before, looks first which records
changed (`changes`), reads those, and leaves a new index alongside the old one, which it then replaces, as
everything whole in the record is. So the existing file is always whole and never changes: nothing waits for anyone,
there are no locks, and it works on every disk. Two that leave one at the same time cost nothing but a record to be
read again. If it can't be left, it stays in memory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from evsys_record.changes import changes
from evsys_record.files import shared_file, storing, sweep, temporary_name
from evsys_record.index_tables import empty, forget, known_marks, put, statuses, version

__all__ = ["Index", "index_path"]

type Row = tuple[Any, ...]

_ABANDONED_SECONDS = 3600.0


def index_path(experiments: Path) -> Path:
    """The path of the index of a folder of experiments: next to `.evsys/experiments`, and inside a folder
    elsewhere.
    """
    return shared_file(experiments, "index.sqlite")


class Index:
    """All experiments in a folder, as of the last `refresh`.

    Args:
        experiments: the folder of all experiments; it need not exist.
        path: where the index is kept; by default `index_path`.
        tell: called with a line if the index was damaged, or can't be stored.
        advanced: called with the number of changed records read so far, and of all of them.
    """

    def __init__(
        self,
        experiments: Path,
        *,
        path: Path | None = None,
        tell: Callable[[str], None] = lambda _line: None,
        advanced: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> None:
        self.experiments = experiments
        self.path = path or index_path(experiments)
        self.kept = False
        self._tell = tell
        self._advanced = advanced
        self._anew = False
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release it. Safe to call twice."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def refresh(self, *, anew: bool = False) -> None:
        """Read what changed since the index was kept, or everything. Nothing is raised for records that can't be read.

        Raises:
            StoreError: the folder of all experiments can't be listed.
        """
        self.close()
        self._anew = False
        if not anew:
            try:
                self._database = self._open_database()
                if self._database is not None:
                    self._bring_up_to_date(self._database)
                    return
            except sqlite3.DatabaseError as exc:
                self._warn_of_damage(exc)
        self._anew = True
        self._database = empty()
        self._bring_up_to_date(self._database)

    def rows(self, query: str, parameters: Iterable[Any] = ()) -> list[Row]:
        """The rows of a query. An index that turns out to be damaged is rebuilt once."""
        if self._database is None:
            self.refresh()
        values = tuple(parameters)
        try:
            return self._all(query, values)
        except sqlite3.DatabaseError as exc:
            if self._anew or isinstance(exc, sqlite3.ProgrammingError):
                raise
            self._warn_of_damage(exc)
        self.refresh(anew=True)
        return self._all(query, values)

    def _all(self, query: str, values: Row) -> list[Row]:
        assert self._database is not None
        return self._database.execute(query, values).fetchall()

    def _warn_of_damage(self, exc: sqlite3.DatabaseError) -> None:
        self.close()
        self._tell(f"the index {self.path} is damaged ({exc}); it is made again from the records")

    def _open_database(self) -> sqlite3.Connection | None:
        """The index kept; None where there is none. No one writes to the file, so nothing need be locked."""
        if not self.path.is_file():
            return None
        database = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
        )
        try:
            (found,) = database.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError:
            database.close()
            raise
        if found == version():
            return database
        database.close()
        self._tell(f"the index {self.path} is of another version; it is made again from the records")
        return None

    def _bring_up_to_date(self, database: sqlite3.Connection) -> None:
        with storing(self.experiments, "list"):
            changed, gone = changes(self.experiments, known_marks(database))
        ended = statuses(database, self.experiments)
        self.kept = not self._anew
        if not (changed or gone or ended):
            if self._anew and self.path.exists():
                self._keep(database)
            return
        if not self._anew:
            copy = sqlite3.connect(":memory:", isolation_level=None)
            database.backup(copy)
            self.close()
            self._database = database = copy
        database.execute("BEGIN")
        for folder in gone:
            forget(database, folder)
        for status, folder in ended:
            database.execute("UPDATE experiment SET status = ? WHERE folder = ?", (status, folder))
        for done, change in enumerate(changed, start=1):
            put(database, self.experiments, change)
            self._advanced(done, len(changed))
        database.execute("COMMIT")
        self._keep(database)

    def _keep(self, database: sqlite3.Connection) -> None:
        """Leave the index for the next time, whole or not at all."""
        self.kept = False
        if not self.path.parent.is_dir() or not os.access(self.path.parent, os.W_OK):
            return
        sweep(self.path.parent, older_than=_ABANDONED_SECONDS)
        temporary = temporary_name(self.path)
        try:
            with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as disk:
                disk.execute("PRAGMA journal_mode = OFF")
                disk.execute("PRAGMA synchronous = OFF")  # what a power cut damages is made again
                database.backup(disk)
            temporary.replace(self.path)
            self.kept = True
        except (OSError, sqlite3.Error) as exc:
            self._tell(f"the index isn't kept in {self.path}: {exc}")
        finally:
            temporary.unlink(missing_ok=True)
