"""A bettor against an unchanged stream is seldom rich, and against a changed one soon."""

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_stats.exchangeability import Martingale

STREAMS = int(os.environ.get("EVSYS_NULL_STREAMS", "200"))


def first_alarm(draw, *, side, n_values, before, after, length, threshold):
    """The number of values until the capital reaches a threshold; None if it doesn't."""
    martingale = Martingale(side, [0] * n_values)
    martingale.calibrate([before(draw) for _ in range(300)])
    for place in range(length):
        martingale.observe(after(draw), 1 - draw.random())
        if martingale.capital >= threshold:
            return place + 1
    return None


def binary(rate):
    return lambda draw: int(draw.random() < rate)


def binned(shift):
    return lambda draw: min(23, max(0, int(12 + 4 * draw.gauss(shift, 1))))


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_an_unchanged_rate_raises_no_more_alarms_than_the_level(rate):
    draw = random.Random(1)
    alarms = [
        first_alarm(
            draw, side="high", n_values=2, before=binary(rate), after=binary(rate), length=400, threshold=10
        )
        for _ in range(STREAMS)
    ]
    assert sum(each is not None for each in alarms) <= 0.1 * STREAMS + 2 * (0.09 * STREAMS) ** 0.5


def test_an_unchanged_measure_raises_no_more_alarms_than_the_level():
    draw = random.Random(2)
    alarms = [
        first_alarm(
            draw, side="both", n_values=24, before=binned(0), after=binned(0), length=300, threshold=10
        )
        for _ in range(STREAMS)
    ]
    assert sum(each is not None for each in alarms) <= 0.1 * STREAMS + 2 * (0.09 * STREAMS) ** 0.5


@pytest.mark.parametrize(
    ("before", "after", "within"), [(0.05, 0.15, 600), (0.05, 0.3, 120), (0.1, 0.4, 100), (0.3, 0.7, 70)]
)
def test_a_higher_rate_is_found_within_the_promised_number(before, after, within):
    draw = random.Random(3)
    found = [
        first_alarm(
            draw,
            side="high",
            n_values=2,
            before=binary(before),
            after=binary(after),
            length=within,
            threshold=100,
        )
        for _ in range(50)
    ]
    assert sum(each is not None for each in found) >= 45


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_a_moved_measure_is_found_on_both_sides(shift):
    draw = random.Random(4)
    found = [
        first_alarm(
            draw, side="both", n_values=24, before=binned(0), after=binned(shift), length=60, threshold=100
        )
        for _ in range(50)
    ]
    assert sum(each is not None for each in found) >= 45


def test_a_lower_rate_is_no_evidence_of_a_higher_one():
    draw = random.Random(5)
    found = [
        first_alarm(
            draw, side="high", n_values=2, before=binary(0.5), after=binary(0.1), length=300, threshold=20
        )
        for _ in range(30)
    ]
    assert found == [None] * 30


@given(
    st.sampled_from(["high", "low", "both"]),
    st.lists(st.integers(1, 20), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.floats(1e-6, 1.0)), max_size=30),
)
def test_each_bet_is_fair_whatever_the_values(side, counts, stream):
    martingale = Martingale(side, list(counts))
    for value, draw in stream:
        martingale.observe(value % len(counts), draw)
        assert martingale.capital >= 0
    before = sum(martingale.counts)
    steps = 2000
    sums = [0.0] * len(martingale._factors(0.5, before))
    for place in range(steps):
        for bet, factor in enumerate(martingale._factors((place + 0.5) / steps, before)):
            assert factor > 0
            sums[bet] += factor / steps
    assert sums == pytest.approx([1.0] * len(sums), abs=0.01)


def test_its_state_comes_back():
    martingale = Martingale("both", [3, 4, 5])
    martingale.observe(1, 0.5)
    again = Martingale(**martingale.tree())
    martingale.observe(2, 0.25)
    again.observe(2, 0.25)
    assert again == martingale
