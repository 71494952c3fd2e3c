"""Curves are drawn from the extremes of buckets: no peak is lost, and the true number of values is stated."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evsys_dashboard.ingest.pieces import Piece
from evsys_dashboard.store.curves import buckets_of, live_points
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


def test_steps_that_a_later_attempt_repeated_count_once(ingest, database):
    lines = [(1, step, step) for step in range(1, 6)] + [(2, step, 10 * step) for step in range(4, 8)]
    data = "".join(f'{{"attempt":{a},"step":{s},"values":{{"loss":{v}}}}}\n' for a, s, v in lines)
    ingest.take("lab", "one", [Piece(file="runs/a/training/metrics.jsonl", data=data.encode())])
    attempts = [{"n": 1, "parent": None, "from_step": 0}, {"n": 2, "parent": 1, "from_step": 3}]
    with database.reading() as connection:
        number = connection.execute(series.select()).one().id
        steps, values = live_points(connection, number, attempts)
    assert steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert values.tolist() == [1, 2, 3, 40, 50, 60, 70]
