"""A database by its URL: how it is opened, brought to the newest schema, and written to in bulk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Condition, RLock
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, bindparam, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from evsys.errors import ConfigError, StoreError
from evsys_dashboard.store import migrations

__all__ = ["Database", "clean", "insert_once", "sqlite_url"]

_ODD = re.compile("[\x00\ud800-\udfff]")
_BUSY_SECONDS = 30

FEW = 16
"""Rows from which on COPY, which has a beginning and an end of its own, is faster than INSERT."""


def clean(text: str) -> str:
    """Text as every database takes it: U+0000 and lone surrogates become U+2400 and U+FFFD."""
    return _ODD.sub(lambda found: "\u2400" if found[0] == "\0" else "\ufffd", text)


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file."""
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


class Database:
    """A database with the newest schema.

    Args:
        url: `sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/NAME`.

    Raises:
        ConfigError: it is the URL of no such database, or its driver isn't installed.
        StoreError: it can't be reached, or a newer version made it.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.shown = self._engine.url.render_as_string(hide_password=True)
        self.on_postgresql = self._engine.dialect.name == "postgresql"
        self._writing = RLock()  # SQLite has one writer; waiting here is fair, and costs no retries
        self._used = 0
        self._unused = Condition()
        try:
            with self._engine.connect() as connection:
                migrations.upgrade(connection)
        except DBAPIError as exc:
            self._engine.dispose()
            raise StoreError(f"can't use the database {self.shown}: {_reason(exc)}") from exc
        except StoreError:
            self._engine.dispose()
            raise

    def close(self) -> None:
        """Close its connections, once the threads that use them have ended their transactions."""
        with self._unused:
            self._unused.wait_for(lambda: self._used == 0, timeout=_BUSY_SECONDS)
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with."""
        with self._in_use(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, which is committed at the end and undone by an exception."""
        if self.on_postgresql:
            with self._in_use(), self._engine.begin() as connection:
                yield connection
        else:
            with self._in_use(), self._writing, self._engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
                connection.commit()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._unused:
            self._used += 1
        try:
            yield
        finally:
            with self._unused:
                self._used -= 1
                self._unused.notify_all()

    def insert(self, connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add many rows, all with the columns of the first: with COPY where the database has it."""
        if not rows:
            return
        if not self.on_postgresql or len(rows) < FEW:
            connection.execute(_insert_into(table), list(rows))
            return
        columns = list(rows[0])
        listed = ", ".join(f'"{column}"' for column in columns)
        cursor = connection.connection.cursor()
        try:
            with cursor.copy(f'COPY "{table.name}" ({listed}) FROM STDIN') as copy:
                for row in rows:
                    copy.write_row([row[column] for column in columns])
        finally:
            cursor.close()

    def update(
        self, connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, key: str = "id"
    ) -> None:
        """Change many rows, found by `key`, all in the same columns: with one statement where that is faster."""
        if not rows:
            return
        columns = [name for name in rows[0] if name != key]
        if self.on_postgresql:
            listed = self._unnested(table, rows, [key, *columns])
            changes = ", ".join(f'"{name}" = new."{name}"' for name in columns)
            same = f'"{table.name}"."{key}" = new."{key}"'
            query = f'UPDATE "{table.name}" SET {changes} FROM {listed} WHERE {same}'  # noqa: S608 - names of ours
            connection.exec_driver_sql(query, {name: [row[name] for row in rows] for name in [key, *columns]})
            return
        changed = [{f"the_{key}": row[key], **{name: row[name] for name in columns}} for row in rows]
        connection.execute(_update_of(table, key, tuple(columns)), changed)

    def delete(self, connection: Connection, table: Table, keys: Sequence[dict[str, Any]]) -> None:
        """Remove many rows, found by the same columns each."""
        if not keys:
            return
        columns = list(keys[0])
        if self.on_postgresql:
            listed = self._unnested(table, keys, columns)
            same = " AND ".join(f'"{table.name}"."{name}" = new."{name}"' for name in columns)
            query = f'DELETE FROM "{table.name}" USING {listed} WHERE {same}'  # noqa: S608 - names of ours
            connection.exec_driver_sql(query, {name: [key[name] for key in keys] for name in columns})
            return
        found = [table.c[name] == bindparam(f"the_{name}") for name in columns]
        connection.execute(
            table.delete().where(*found), [{f"the_{name}": key[name] for name in columns} for key in keys]
        )

    def _unnested(self, table: Table, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
        """Rows as a table `new` of PostgreSQL, from one array a column."""
        kinds = {name: table.c[name].type.compile(self._engine.dialect) for name in columns}
        arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in kinds.items())
        listed = ", ".join(f'"{name}"' for name in columns)
        return f"unnest({arrays}) AS new({listed})"


@cache  # making a statement costs more than to execute it
def _update_of(table: Table, key: str, columns: tuple[str, ...]) -> sqlalchemy.Update:
    found = table.c[key] == bindparam(f"the_{key}")
    return table.update().where(found).values({name: bindparam(name) for name in columns})


@cache
def _insert_into(table: Table) -> sqlalchemy.Insert:
    return table.insert()


def insert_once(connection: Connection, table: Table, values: Mapping[str, Any]) -> None:
    """Add a row, unless there is one with its key."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(values).on_conflict_do_nothing())


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
            raise ConfigError(
                f"unsupported database {parsed.get_backend_name()!r}",
                hint="use sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME",
            )
        if parsed.get_backend_name() == "postgresql":
            return sqlalchemy.create_engine(parsed, pool_pre_ping=True, pool_size=8)
        engine = sqlalchemy.create_engine(
            parsed, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}
        )
    except (ArgumentError, NoSuchModuleError) as exc:
        raise ConfigError(
            "the text isn't the URL of a database",
            hint="write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME",
        ) from exc
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the driver {exc.name!r} for this database isn't installed",
            hint="pip install 'evsys-dashboard[postgres]'",
        ) from exc
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin as `writing` says
    cursor = connection.cursor()
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "cache_size = -32000"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _reason(exc: DBAPIError) -> str:
    return str(exc.orig).strip().partition("\n")[0]
