"""The audit log: who changed what, for administrators to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import sqlalchemy as sa

from evsys_dashboard.store.database import Database, clean
from evsys_dashboard.store.tables import audit
from evsys_record.encoding import now

__all__ = ["AuditEntry", "read_audit", "write_audit"]


@attrs.frozen(kw_only=True)
class AuditEntry:
    """A line of the audit log. `key` is the printable part of the key used."""

    id: int
    at: str
    action: str
    key: str | None
    address: str | None
    project: str | None
    facts: Mapping[str, Any]


def write_audit(
    database: Database,
    action: str,
    *,
    key: str | None = None,
    address: str | None = None,
    project: str | None = None,
    **facts: Any,
) -> None:
    """Add a line to the audit log."""
    row = {
        "at": now(),
        "action": action,
        "key": key,
        "address": address,
        "project": None if project is None else clean(project),
        "facts": json.dumps(facts),
    }
    with database.writing() as connection:
        connection.execute(sa.insert(audit).values(row))


def read_audit(connection: sa.Connection, *, before: int | None, limit: int) -> list[AuditEntry]:
    """The newest lines of the audit log, or those older than line `before`."""
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.c.id < before)
    return [
        AuditEntry(**{**row, "facts": json.loads(row["facts"])})
        for row in connection.execute(query).mappings()
    ]
