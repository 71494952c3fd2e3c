"""Quantities are read as they are written."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_quantities import Quantity


@pytest.mark.parametrize(
    ("text", "value", "measures"),
    [
        ("3.2 km", 3200.0, "length"),
        ("That is 12,500 m.", 12500.0, "length"),
        ("-4e-2 kg", -0.04, "mass"),
        ("First 5 m, no: 2 h", 7200.0, "time"),
        ("5 apples", 5.0, None),
        ("1,2 or 1,2345", 2345.0, None),
        ("90min", 5400.0, "time"),
    ],
)
def test_the_last_quantity_counts(text: str, value: float, measures: str | None) -> None:
    found = Quantity.last_in(text)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert found.measures == measures


@pytest.mark.parametrize("text", ["", "far", "x3", "9" * 400])
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert Quantity.last_in(text) is None


@given(st.floats(1e-6, 1e12), st.sampled_from(["", " km", "kg", " s"]))
def test_what_python_writes_is_read_again(number: float, unit: str) -> None:
    found = Quantity.last_in(f"{number}{unit}")
    assert found is not None
    assert math.isclose(found.value, number * (1000 if "km" in unit else 1), rel_tol=1e-12)
