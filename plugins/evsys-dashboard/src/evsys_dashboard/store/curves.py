"""Curves as they are drawn: the live points of a series, or the extremes of as many buckets as fit on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from evsys_dashboard.store.tables import block
from evsys_record.attempts import Attempt, lineage

__all__ = ["Buckets", "buckets_of", "live_points"]


class Buckets(NamedTuple):
    """Buckets of a curve: how many values it has, and of each bucket its first step, its extremes (NaN without a finite value) and its number of values."""

    total: int
    steps: Sequence[int]
    low: Sequence[float]
    high: Sequence[float]
    counts: Sequence[int]


def live_points(
    connection: sa.Connection, series_id: int, attempts: Sequence[Mapping[str, Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """The steps, int64 and ascending, and the values, float64, of a series; a repeated step has its later value."""
    query = (
        sa.select(block.c.attempt, block.c.data)
        .where(block.c.series_id == series_id)
        .order_by(block.c.number)
    )
    bounds = lineage([Attempt(**attempt) for attempt in attempts]) if attempts else {}
    all_steps, all_values = [], []
    for attempt, data in connection.execute(query):
        half = len(data) // 2
        steps = np.frombuffer(data[:half], dtype="<i8")
        values = np.frombuffer(data[half:], dtype="<f8")
        if bounds:
            if attempt not in bounds:
                continue
            bound = bounds[attempt]
            if bound is not None and len(steps) and steps[-1] > bound:
                steps, values = steps[steps <= bound], values[steps <= bound]
        all_steps.append(steps)
        all_values.append(values)
    if not all_steps:
        return np.empty(0, dtype=np.int64), np.empty(0)
    return _latest(np.concatenate(all_steps), np.concatenate(all_values))


def _latest(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps in order, each with the value written last."""
    if len(steps) < 2 or (steps[1:] > steps[:-1]).all():
        return steps, values
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(np.diff(steps) > 0, [True])
    return steps[last], values[last]


def buckets_of(steps: np.ndarray, values: np.ndarray, most: int) -> Buckets:
    """A curve in at most `most` buckets of equal width in steps."""
    total = len(steps)
    if total <= most:
        return Buckets(total, steps.tolist(), values.tolist(), values.tolist(), [1] * total)
    first, last = int(steps[0]), int(steps[-1])
    width = (last - first) / most or 1.0
    places = np.minimum(((steps - first) / width).astype(np.int64), most - 1)
    starts = np.flatnonzero(np.append([True], np.diff(places) > 0))
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    counts = np.diff(np.append(starts, total))
    nothing = low > high
    low[nothing] = high[nothing] = np.nan
    return Buckets(total, steps[starts].tolist(), low.tolist(), high.tolist(), counts.tolist())
