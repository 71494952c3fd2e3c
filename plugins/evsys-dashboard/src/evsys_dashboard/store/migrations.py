"""The schema's history, by Alembic: a database is brought to the newest schema whenever it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from evsys.errors import StoreError

__all__ = ["upgrade"]

_LOCK = 0x65767379
"""Its holder changes the schema, one server at a time."""


def upgrade(connection: Connection) -> None:
    """Bring a database to the newest schema.

    Raises:
        StoreError: a later version made it.
    """
    scripts = ScriptDirectory(str(Path(__file__).parent))
    if MigrationContext.configure(connection).get_current_revision() == scripts.get_current_head():
        return
    connection.rollback()
    _begin_alone(connection)
    current = MigrationContext.configure(connection).get_current_revision()

    def steps(revision: Any, _context: object) -> Any:
        return scripts._upgrade_revs("head", revision)  # noqa: SLF001 - as Alembic's own `command.upgrade`

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(connection=connection)
        try:
            environment.run_migrations()
        except CommandError as exc:
            raise StoreError(
                f"a newer version of evsys-dashboard made this database (schema {current})",
                hint="upgrade evsys-dashboard",
            ) from exc
    connection.commit()


def _begin_alone(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
