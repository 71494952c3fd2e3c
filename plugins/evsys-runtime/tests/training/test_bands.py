import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import PluginContractError
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.bands import Band, bands_of, out_of_bands


def lines(*values, name="m"):
    return [{"step": step, "values": {name: value}} for step, value in enumerate(values, 1)]


def left(values, band):
    found = out_of_bands(lines(*values), {"m": band})
    return [(one.first_step, one.last_step, one.steps) for one in found]


HIGH = Band(None, 1.0, "too much", lasting=3)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.0, 1.0, 0.5], []),
        ([2.0, 2.0, 0.0, 2.0, 2.0, 0.0], []),
        ([0.0, 2.0, 2.0, 2.0], [(2, 4, 3)]),
        ([2.0, 2.0, 2.0, 2.0, 0.0], [(1, 4, 4)]),
        ([2.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 2.0, 2.0], [(1, 9, 6)]),
        ([None, None, None], [(1, 3, 3)]),
        ([], []),
    ],
)
def test_a_metric_is_out_of_its_band_once_it_was_for_a_few_values_in_a_row(values, found):
    assert left(values, HIGH) == found


def test_both_ends_belong_to_a_band():
    band = Band(-1.0, 1.0, "w", lasting=1)
    assert left([-1.0, 1.0], band) == []
    assert left([-1.0001], band) == left([1.0001], band) == [(1, 1, 1)]


def test_the_share_is_of_the_steps_that_have_the_metric():
    measured = [*lines(2.0, 2.0, 2.0, 0.0), {"step": 5, "values": {"other": 1.0}}]
    (found,) = out_of_bands(measured, {"m": HIGH})
    assert (found.metric, found.low, found.high, found.why, found.share) == ("m", None, 1.0, "too much", 0.75)


def test_steps_without_the_metric_end_no_stretch():
    every_other = [{"step": step, "values": {"m": 2.0} if step % 2 else {"n": 0.0}} for step in range(1, 6)]
    (found,) = out_of_bands(every_other, {"m": HIGH})
    assert (found.first_step, found.last_step, found.steps) == (1, 5, 3)


def test_a_metric_that_is_never_measured_is_in_no_trouble():
    assert out_of_bands(lines(2.0, 2.0, 2.0), {"another": HIGH}) == ()


@given(st.lists(st.floats(-2, 2) | st.none(), max_size=60), st.integers(1, 6))
def test_what_is_told_is_what_a_plain_count_of_stretches_gives(values, lasting):
    band = Band(-1.0, 1.0, "w", lasting=lasting)
    out = [value is None or not -1.0 <= value <= 1.0 for value in values]
    long = [
        i
        for i in range(len(out))
        if any(
            all(out[s : s + lasting]) and len(out[s : s + lasting]) == lasting
            for s in range(max(0, i - lasting + 1), i + 1)
        )
    ]
    expected = [(long[0] + 1, long[-1] + 1, len(long))] if long else []
    assert left(values, band) == expected


@pytest.mark.parametrize(
    ("ends", "said"),
    [((None, None), "a low or a high end"), ((2.0, 1.0), "is empty")],
)
def test_a_band_that_holds_nothing_or_all_is_refused(ends, said):
    with pytest.raises(ValueError, match=said):
        Band(*ends, "w")


def test_a_band_is_left_for_at_least_one_step():
    with pytest.raises(ValueError, match="at least one step"):
        Band(0.0, 1.0, "w", lasting=0)


def test_an_algorithm_declares_nothing_unless_it_says_so():
    assert bands_of(BaseAlgorithm, "a") == {}
    assert bands_of(object(), "a") == {}


@pytest.mark.parametrize("health", [{"m": (0, 1)}, [HIGH], {1: HIGH}, "m"])
def test_a_contract_of_another_shape_is_the_algorithms_fault(health):
    odd = type("Odd", (), {"health": health})
    with pytest.raises(PluginContractError, match="'odd': `health` maps names of metrics to bands"):
        bands_of(odd, "odd")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_in_no_band(value):
    assert not Band(-1e9, 1e9, "w").holds(value)
