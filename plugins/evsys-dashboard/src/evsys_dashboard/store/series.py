"""Series of a run: their points packed into blocks, and read again, whole or as the extremes of buckets."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from evsys_dashboard.store.tables import block, series

if TYPE_CHECKING:
    from evsys_dashboard.ingest.lines import Point
    from evsys_dashboard.store.database import Database

__all__ = ["append_points", "unpack"]

BLOCK = 512
"""Points of a complete block."""


class _Open(NamedTuple):
    """The last block of a series."""

    number: int
    attempt: int
    points: int
    data: bytes


def append_points(
    database: Database, connection: sa.Connection, run_id: int, phase: str, points: Iterable[Point]
) -> None:
    """Add points to the series of a run."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    if not by_name:
        return
    known = _series(database, connection, run_id, phase, by_name)
    last = _last_blocks(connection, run_id, phase)
    removed: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for name, ours in by_name.items():
        row = known[name]
        before = last.get(row["id"])
        if before is not None and before.points < BLOCK:
            removed.append({"series_id": row["id"], "number": before.number})
        added += _blocks(row["id"], before, ours)
        changed.append(_columns_of(row, ours))
    database.delete(connection, block, removed)
    database.insert(connection, block, added)
    database.update(connection, series, changed)


def _series(
    database: Database, connection: sa.Connection, run_id: int, phase: str, names: Iterable[str]
) -> Mapping[str, sa.RowMapping]:
    query = sa.select(series).where(series.c.run_id == run_id, series.c.phase == phase)
    known = {row["name"]: row for row in connection.execute(query).mappings()}
    missing = [name for name in names if name not in known]
    if missing:
        rows = [{"run_id": run_id, "phase": phase, "name": name, "count": 0} for name in missing]
        database.insert(connection, series, rows)
        known = {row["name"]: row for row in connection.execute(query).mappings()}
    return known


def _last_blocks(connection: sa.Connection, run_id: int, phase: str) -> Mapping[int, _Open]:
    newest = (
        sa.select(block.c.series_id, sa.func.max(block.c.number).label("number"))
        .join(series, series.c.id == block.c.series_id)
        .where(series.c.run_id == run_id, series.c.phase == phase)
        .group_by(block.c.series_id)
        .subquery()
    )
    query = sa.select(block.c.series_id, block.c.number, block.c.attempt, block.c.count, block.c.data).join(
        newest, (newest.c.series_id == block.c.series_id) & (newest.c.number == block.c.number)
    )
    return {row[0]: _Open(*row[1:]) for row in connection.execute(query)}


def _blocks(series_id: int, before: _Open | None, points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    """The blocks from the last one on, each of one attempt; the last one again if points go into it."""
    number = 0 if before is None else before.number
    attempt = points[0].attempt
    steps, values = array("q"), array("d")
    if before is not None:
        if before.points < BLOCK:
            attempt, (steps, values) = before.attempt, unpack(before.data)
        else:
            number += 1
    for point in points:
        if steps and (point.attempt != attempt or len(steps) >= BLOCK):
            yield _row(series_id, number, attempt, steps, values)
            number += 1
            steps, values = array("q"), array("d")
        attempt = point.attempt
        steps.append(point.step)
        values.append(point.value)
    yield _row(series_id, number, attempt, steps, values)


def _row(
    series_id: int, number: int, attempt: int, steps: array[int], values: array[float]
) -> dict[str, Any]:
    if sys.byteorder == "big":
        steps, values = array("q", steps), array("d", values)
        steps.byteswap()
        values.byteswap()
    return {
        "series_id": series_id,
        "number": number,
        "attempt": attempt,
        "count": len(steps),
        "data": steps.tobytes() + values.tobytes(),
    }


def unpack(data: bytes) -> tuple[array[int], array[float]]:
    """The steps and the values of a block."""
    steps, values = array("q"), array("d")
    steps.frombytes(data[: len(data) // 2])
    values.frombytes(data[len(data) // 2 :])
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    return steps, values


def _columns_of(row: sa.RowMapping, points: Sequence[Point]) -> dict[str, Any]:
    """The columns of a series after these points: their number, the last, and the finite extremes."""
    finite = [point.value for point in points if point.value - point.value == 0]
    known = [value for value in (row["low"], row["high"]) if value is not None]
    last = points[-1]
    return {
        "id": row["id"],
        "count": row["count"] + len(points),
        "last_step": last.step,
        "last": last.value if last.value - last.value == 0 else None,
        "low": min((*finite, *known), default=None),
        "high": max((*finite, *known), default=None),
    }
