"""Curves as they are drawn: the live points of a series, or the extremes of as many buckets as fit on a screen.

A long curve is drawn from the extents of its blocks, without reading its points: a bucket then holds whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from evsys_dashboard.store.tables import block
from evsys_record.attempts import Attempt, lineage

__all__ = ["Buckets", "buckets_of", "live_buckets"]

_EXTENTS = (
    sa.select(
        block.c.number,
        block.c.attempt,
        block.c.count,
        block.c.first_step,
        block.c.last_step,
        block.c.low,
        block.c.high,
        block.c.ascending,
    )
    .where(block.c.series_id == sa.bindparam("series"))
    .order_by(block.c.number)
)
_BLOCKS = (
    sa.select(block.c.attempt, block.c.data)
    .where(block.c.series_id == sa.bindparam("series"))
    .order_by(block.c.number)
)
_BLOCK = sa.select(block.c.attempt, block.c.data).where(
    block.c.series_id == sa.bindparam("series"), block.c.number == sa.bindparam("number")
)


class Buckets(NamedTuple):
    """Buckets of a curve: how many values it has, and of each bucket its first step, its extremes (NaN without a finite value) and its number of values."""

    total: int
    steps: Sequence[int]
    low: Sequence[float]
    high: Sequence[float]
    counts: Sequence[int]


class _Points(NamedTuple):
    """Steps, int64, and values, float64."""

    steps: np.ndarray
    values: np.ndarray


class _Extents(NamedTuple):
    """Of blocks one after the other: first and last steps, extremes of the finite values (NaN without any), counts."""

    first: np.ndarray
    last: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray


type Bounds = Mapping[int, int | None]
"""The attempts whose points are live, each up to a step; empty where all are."""


def live_buckets(
    connection: sa.Connection, row: sa.RowMapping, attempts: Sequence[Mapping[str, Any]], most: int
) -> Buckets:
    """The live values of a series in at most `most` buckets.

    Args:
        connection: to the database.
        row: `id`, `blocks`, `tail` and `tail_attempt` of the series.
        attempts: of its run.
        most: of the buckets; a long curve may have half as many.
    """
    bounds = _bounds(attempts)
    found = None
    if 2 * row["blocks"] >= most:
        found = _extents(connection, row, bounds)
    if found is None or 2 * len(found.first) < most or int(found.counts.sum()) <= most:
        return buckets_of(*_live_points(connection, row, bounds), most)
    return _merged(found.first, found.low, found.high, found.counts, most)


def _bounds(attempts: Sequence[Mapping[str, Any]]) -> Bounds:
    return lineage([Attempt(**attempt) for attempt in attempts]) if attempts else {}


def _live_points(connection: sa.Connection, row: sa.RowMapping, bounds: Bounds) -> _Points:
    packed: list[Sequence[Any]] = []
    if row["blocks"]:
        packed += connection.execute(_BLOCKS, {"series": row["id"]})
    if row["tail"]:
        packed.append((row["tail_attempt"], row["tail"]))
    found = [live for attempt, data in packed if (live := _live(attempt, data, bounds)) is not None]
    if not found:
        return _Points(np.empty(0, dtype=np.int64), np.empty(0))
    return _latest(*map(np.concatenate, zip(*found, strict=True)))


def _live(attempt: int, data: bytes, bounds: Bounds) -> _Points | None:
    """The points of a block that no later attempt replaced."""
    if bounds and attempt not in bounds:
        return None
    half = len(data) // 2
    steps = np.frombuffer(data[:half], dtype="<i8")
    values = np.frombuffer(data[half:], dtype="<f8")
    bound = bounds.get(attempt)
    if bound is not None and len(steps) and steps[-1] > bound:
        steps, values = steps[steps <= bound], values[steps <= bound]
    return _Points(steps, values)


def _extents(connection: sa.Connection, row: sa.RowMapping, bounds: Bounds) -> _Extents | None:
    """The extents of what is live of a series' blocks; None if they don't say it, since steps repeat or one is unknown."""
    found: list[tuple[int, int, float, float, int]] = []
    for each in connection.execute(_EXTENTS, {"series": row["id"]}):
        number, attempt, count, first, last, low, high, ascending = each
        if bounds and attempt not in bounds:
            continue
        if not ascending:
            return None
        bound = bounds.get(attempt)
        if bound is None or last <= bound:
            none = low is None
            found.append((first, last, np.nan if none else low, np.nan if none else high, count))
        elif first <= bound:
            cut = connection.execute(_BLOCK, {"series": row["id"], "number": number}).one()
            found += _extent_of(_live(cut.attempt, cut.data, bounds))
    if row["tail"]:
        tail = _live(row["tail_attempt"], row["tail"], bounds)
        if tail is not None and not (tail.steps[1:] > tail.steps[:-1]).all():
            return None
        found += _extent_of(tail)
    if any(before[1] >= after[0] for before, after in pairwise(found)):
        return None
    return _columns(found)


def _columns(found: Iterable[tuple[int, int, float, float, int]]) -> _Extents:
    first, last, low, high, counts = zip(*found, strict=True) if found else ((),) * 5
    return _Extents(
        np.array(first, dtype=np.int64),
        np.array(last, dtype=np.int64),
        np.array(low, dtype=float),
        np.array(high, dtype=float),
        np.array(counts, dtype=np.int64),
    )


def _extent_of(points: _Points | None) -> list[tuple[int, int, float, float, int]]:
    """The extent of points, if there are any."""
    if points is None or not len(points.steps):
        return []
    finite = points.values[np.isfinite(points.values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (np.nan, np.nan)
    return [(int(points.steps[0]), int(points.steps[-1]), float(low), float(high), len(points.steps))]


def _latest(steps: np.ndarray, values: np.ndarray) -> _Points:
    """Steps in order, each with the value written last."""
    if len(steps) < 2 or (steps[1:] > steps[:-1]).all():
        return _Points(steps, values)
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(np.diff(steps) > 0, [True])
    return _Points(steps[last], values[last])


def buckets_of(steps: np.ndarray, values: np.ndarray, most: int) -> Buckets:
    """A curve in at most `most` buckets of equal width in steps."""
    total = len(steps)
    if total <= most:
        return Buckets(total, steps.tolist(), values.tolist(), values.tolist(), [1] * total)
    finite = np.where(np.isfinite(values), values, np.nan)
    return _merged(steps, finite, finite, np.ones(total, dtype=np.int64), most)


def _merged(steps: np.ndarray, low: np.ndarray, high: np.ndarray, counts: np.ndarray, most: int) -> Buckets:
    """Extents by their first steps, merged into at most `most` buckets of equal width in steps."""
    first, last = int(steps[0]), int(steps[-1])
    width = (last - first) / most or 1.0
    places = np.minimum(((steps - first) / width).astype(np.int64), most - 1)
    starts = np.flatnonzero(np.append([True], np.diff(places) > 0))
    return Buckets(
        int(counts.sum()),
        steps[starts].tolist(),
        np.fmin.reduceat(low, starts).tolist(),
        np.fmax.reduceat(high, starts).tolist(),
        np.add.reduceat(counts, starts).tolist(),
    )
