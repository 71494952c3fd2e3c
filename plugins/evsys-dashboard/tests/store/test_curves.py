"""Curves are drawn from the extremes of buckets: no peak is lost, and the true number of values is stated."""

import numpy as np
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_curves import stored_curve

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.ingest.pieces import Piece
from evsys_dashboard.store import curves
from evsys_dashboard.store.curves import buckets_of
from evsys_dashboard.store.tables import series

VALUES = st.lists(st.floats(allow_nan=True), min_size=1, max_size=200)


@given(VALUES, st.integers(1, 50), st.integers(1, 1000))
def test_buckets_hold_all_values_and_both_extremes(values, most, gap):
    steps = np.arange(len(values), dtype=np.int64) * gap
    found = buckets_of(steps, np.array(values), most)
    assert found.total == sum(found.counts) == len(values)
    assert len(found.steps) == len(found.low) == len(found.high) <= max(most, 1)
    assert list(found.steps) == sorted(set(found.steps))
    finite = [value for value in values if np.isfinite(value)]
    if finite and len(values) > most:
        assert (np.nanmin(found.low), np.nanmax(found.high)) == (min(finite), max(finite))


def test_a_short_curve_is_drawn_as_it_is():
    found = buckets_of(np.array([1, 5, 9]), np.array([3.0, 1.0, 2.0]), 3)
    assert (found.steps, found.low, found.high, found.counts) == (
        [1, 5, 9],
        [3.0, 1.0, 2.0],
        [3.0, 1.0, 2.0],
        [1, 1, 1],
    )


def lines(points) -> bytes:
    return "".join(f'{{"attempt":{a},"step":{s},"values":{{"loss":{v}}}}}\n' for a, s, v in points).encode()


def test_steps_that_a_later_attempt_repeated_count_once(ingest, database):
    points = [(1, step, step) for step in range(1, 6)] + [(2, step, 10 * step) for step in range(4, 8)]
    ingest.take("lab", "one", [Piece(file="runs/a/training/metrics.jsonl", data=lines(points))])
    attempts = [{"n": 1, "parent": None, "from_step": 0}, {"n": 2, "parent": 1, "from_step": 3}]
    with database.reading() as connection:
        number = connection.execute(series.select()).one().id
        found = stored_curve(connection, number, attempts)
    assert found.steps == [1, 2, 3, 4, 5, 6, 7]
    assert found.low == found.high == [1, 2, 3, 40, 50, 60, 70]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3000), st.integers(0, 3000), st.booleans(), st.integers(2, 40), st.integers(0, 99))
def test_a_curve_drawn_from_extents_has_the_values_of_its_points(
    database, before, behind, repeated, most, seed
):
    """Two attempts, the second from the middle of the first; steps in it may repeat, and values be missing."""
    rng = np.random.default_rng(seed)
    ingest, name = Ingest(database), f"{before}-{behind}-{repeated}-{most}-{seed}"
    start = before // 2
    steps = [(1, step) for step in range(before)] + [(2, start + step) for step in range(1, behind)]
    if repeated and behind > 2:
        steps.append((2, start + 1))
    points = [(a, s, "null" if rng.random() < 0.1 else f"{rng.normal():.6f}") for a, s in steps]
    data = lines(points)
    ingest.take("lab", name, [Piece(file="runs/a/training/metrics.jsonl", data=data)])
    if not points:
        return
    attempts = [
        {"n": 1, "parent": None, "from_step": 0},
        {"n": 2, "parent": 1, "from_step": start},
    ]
    with database.reading() as connection:
        query = sa.select(sa.func.max(series.c.id))
        number = connection.execute(query).scalar_one()
        exact = stored_curve(connection, number, attempts)
        drawn = stored_curve(connection, number, attempts, most)
    assert drawn.total == exact.total == sum(drawn.counts)
    assert len(drawn.steps) <= most or drawn.total <= most
    assert list(drawn.steps) == sorted(set(drawn.steps))
    places = np.searchsorted(exact.steps, drawn.steps)
    assert np.diff([*places, exact.total]).tolist() == list(drawn.counts)
    for place, low, high, count in zip(places, drawn.low, drawn.high, drawn.counts, strict=True):
        values = np.array(exact.low[place : place + count])
        finite = values[np.isfinite(values)]
        assert [low, high] == [finite.min(), finite.max()] if len(finite) else low != low and high != high


def test_a_long_curve_is_drawn_without_reading_its_points(ingest, database, monkeypatch):
    points = [(1, step, step % 100) for step in range(20_000)]
    ingest.take("lab", "one", [Piece(file="runs/a/training/metrics.jsonl", data=lines(points))])
    monkeypatch.setattr(curves, "_live_points", None)
    with database.reading() as connection:
        number = connection.execute(series.select()).one().id
        found = stored_curve(connection, number, most=50)
    assert (found.total, found.low[0], found.high[0]) == (20_000, 0, 99)
    assert 25 <= len(found.steps) <= 50
