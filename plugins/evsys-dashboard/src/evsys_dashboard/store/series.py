"""Series of a run: points packed into blocks, the newest of them in the series itself until they fill one."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import sqlalchemy as sa

from evsys_dashboard.store.tables import block, series

if TYPE_CHECKING:
    from evsys_dashboard.ingest.lines import Point
    from evsys_dashboard.store.database import Database

__all__ = ["append_points"]

BLOCK = 512
"""Points of a complete block."""

type OfRun = tuple[int, str]
"""The number of a run, and a phase."""

_KNOWN = sa.select(series).where(
    series.c.run_id.in_(sa.bindparam("runs", expanding=True)),
    series.c.phase.in_(sa.bindparam("phases", expanding=True)),
)


@attrs.define
class _Tail:
    """The points of a series behind its last block, all of one attempt, and the blocks that they filled."""

    series_id: int
    number: int
    attempt: int | None
    steps: array[int]
    values: array[float]
    filled: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, points: Iterable[Point]) -> None:
        for point in points:
            if self.steps and (point.attempt != self.attempt or len(self.steps) >= BLOCK):
                self._close()
            self.attempt = point.attempt
            self.steps.append(point.step)
            self.values.append(point.value)

    def _close(self) -> None:
        low, high = _extremes(self.values)
        self.filled.append(
            {
                "series_id": self.series_id,
                "number": self.number,
                "attempt": self.attempt,
                "count": len(self.steps),
                "first_step": self.steps[0],
                "last_step": self.steps[-1],
                "low": low,
                "high": high,
                "ascending": all(before < after for before, after in pairwise(self.steps)),
                "data": _pack(self.steps, self.values),
            }
        )
        self.number += 1
        self.steps, self.values = array("q"), array("d")


def append_points(
    database: Database,
    connection: sa.Connection,
    found: Mapping[OfRun, Mapping[str, Sequence[Point]]],
) -> None:
    """Add points to series.

    Args:
        database: where they are.
        connection: a transaction of it.
        found: the points by run and phase, then by name.
    """
    if not found:
        return
    known = _series(database, connection, found)
    filled: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for of_run, by_name in found.items():
        for name, points in by_name.items():
            row = known[of_run, name]
            tail = _Tail(row["id"], row["blocks"], row["tail_attempt"], *_unpack(row["tail"] or b""))
            tail.add(points)
            filled += tail.filled
            changed.append(_columns_of(row, points, tail))
    database.insert(connection, block, filled)
    database.update(connection, series, changed)


def _series(
    database: Database, connection: sa.Connection, found: Mapping[OfRun, Mapping[str, object]]
) -> Mapping[tuple[OfRun, str], sa.RowMapping]:
    """The row of each series, made if there is none."""
    runs, phases = zip(*found, strict=True)
    wanted = {"runs": sorted(set(runs)), "phases": sorted(set(phases))}

    def read() -> dict[tuple[OfRun, str], sa.RowMapping]:
        rows = connection.execute(_KNOWN, wanted).mappings()
        return {((row["run_id"], row["phase"]), row["name"]): row for row in rows}

    known = read()
    missing = [
        {"run_id": run_id, "phase": phase, "name": name, "count": 0, "blocks": 0}
        for (run_id, phase), by_name in found.items()
        for name in by_name
        if ((run_id, phase), name) not in known
    ]
    if missing:
        database.insert(connection, series, missing)
        known = read()
    return known


def _columns_of(row: sa.RowMapping, points: Sequence[Point], tail: _Tail) -> dict[str, Any]:
    """The columns of a series after these points: their number, the last, the finite extremes, and the newest ones."""
    extremes = [value for value in (row["low"], row["high"]) if value is not None]
    low, high = _extremes([*(point.value for point in points), *extremes])
    last = points[-1]
    return {
        "id": row["id"],
        "count": row["count"] + len(points),
        "last_step": last.step,
        "last": last.value if last.value - last.value == 0 else None,
        "low": low,
        "high": high,
        "blocks": tail.number,
        "tail_attempt": tail.attempt,
        "tail": _pack(tail.steps, tail.values),
    }


def _extremes(values: Iterable[float]) -> tuple[float | None, float | None]:
    finite = [value for value in values if value - value == 0]
    return min(finite, default=None), max(finite, default=None)


def _pack(steps: array[int], values: array[float]) -> bytes:
    if sys.byteorder == "big":
        steps, values = array("q", steps), array("d", values)
        steps.byteswap()
        values.byteswap()
    return steps.tobytes() + values.tobytes()


def _unpack(data: bytes) -> tuple[array[int], array[float]]:
    steps, values = array("q"), array("d")
    steps.frombytes(data[: len(data) // 2])
    values.frombytes(data[len(data) // 2 :])
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    return steps, values
