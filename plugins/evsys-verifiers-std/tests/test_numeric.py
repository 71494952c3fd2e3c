import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_verifiers_std.numeric import Numeric


@pytest.mark.parametrize(
    ("output", "expected", "params", "reward"),
    [
        ("The answer is 42.", 42, {}, 1.0),
        ("41", 42, {}, 0.0),
        ("First 7, then 42", 42, {}, 1.0),
        ("First 7, then 42", 7, {}, 0.0),
        ("First 7, then 42", 7, {"pick": "first"}, 1.0),
        ("First 7, then 42", 42, {"pick": "only"}, 0.0),
        ("It is 42", 42, {"pick": "only"}, 1.0),
        ("2 + 2 = 4\n#### 5 (of 9)", 5, {"after": "####", "pick": "first"}, 1.0),
        ("5", 5, {"after": "####"}, 0.0),
        ("1,000", 1000, {}, 1.0),
        ("1.000", 1000, {"decimal": ","}, 1.0),
        ("0.1", 0.1, {}, 1.0),
        ("1/2", 0.5, {}, 1.0),
        ("0.333", "1/3", {}, 0.0),
        ("0.333", "1/3", {"tolerance": 0.001}, 1.0),
        ("105", 100, {"relative_tolerance": 0.05}, 1.0),
        ("105.1", 100, {"relative_tolerance": 0.05}, 0.0),
        ("b", [1, 2], {}, 0.0),
        ("2", [1, 2], {}, 1.0),
        ("no idea", 0, {}, 0.0),
        ("1e999999", 5, {"tolerance": 1e100}, 0.0),
        ("10000000001", 10000000000, {}, 0.0),
        # without an expected unit, units don't matter
        ("42 apples", 42, {}, 1.0),
        ("50%", 50, {}, 1.0),
        ("50%", 0.5, {}, 0.0),
        # with one, they do
        ("5 km", "5 km", {}, 1.0),
        ("5000 m", "5 km", {}, 1.0),
        ("5000 m in total", "5 km", {}, 1.0),
        ("5,000 metres", {"value": 5, "unit": "km"}, {}, 1.0),
        ("5 kg", "5 km", {}, 0.0),
        ("5", "5 km", {}, 0.0),
        ("5", "5 km", {"unit_optional": True}, 1.0),
        ("5 kg", "5 km", {"unit_optional": True}, 0.0),
        ("18 km/h", "5 m/s", {}, 1.0),
        ("1 mile", "1.6 km", {"tolerance": 0.01}, 1.0),
        ("1 mile", "1.6 km", {}, 0.0),
        ("50%", "50%", {}, 1.0),
        ("0.5", "50%", {}, 1.0),
        ("50", "50%", {}, 0.0),
        ("50", "50%", {"unit_optional": True}, 1.0),
        ("20 °C", "20 °C", {}, 1.0),
        ("20 °F", "20 °C", {}, 0.0),
        ("There are 3 apples.", "3 apples", {}, 1.0),
        ("1 apple", "1 apples", {}, 1.0),
        ("3 pears", "3 apples", {}, 0.0),
        ("3", "3 apples", {}, 0.0),
        ("3.", "3 apples", {"unit_optional": True}, 1.0),
        ("3 pears", "3 apples", {"unit_optional": True}, 0.0),
    ],
)
def test_numeric(output, expected, params, reward):
    assert Numeric(**params)(output, expected, {}) == reward
    assert Numeric()(output, expected, params) == reward
    Numeric(**params).check(expected)


@pytest.mark.parametrize("expected", [None, "none", "1 or 2", True, [], {"unit": "m"}])
def test_an_expectation_without_a_number_is_refused_and_gives_no_reward(expected):
    with pytest.raises(ValueError, match="`expected`"):
        Numeric().check(expected)
    with pytest.raises(ValueError, match="`expected`"):
        Numeric()("1", expected, {})


@pytest.mark.parametrize(
    "params",
    [
        {"tolerance": -1},
        {"tolerance": float("inf")},
        {"relative_tolerance": 2},
        {"pick": "all"},
        {"decimal": ";"},
    ],
)
def test_params_that_make_no_sense_are_refused(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        Numeric(**params)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_itself(number):
    assert Numeric()(f"I get {number!r}", number, {}) == 1.0


@given(st.integers(0, 10**12), st.integers(0, 999), st.integers(0, 1000))
def test_the_tolerance_is_exact_at_its_edge(number, off, tolerance):
    """In thousandths, where floats would round."""
    said = f"{number}.{off:03d}"
    assert Numeric(tolerance=tolerance / 1000)(said, number, {}) == float(off <= tolerance)


@given(
    st.integers(1, 10**6),
    st.sampled_from([("km", "m", 1000), ("h", "min", 60), ("kWh", "kJ", 3600), ("ft", "in", 12)]),
)
def test_a_quantity_is_the_same_in_another_unit(number, units):
    larger, smaller, times = units
    assert Numeric()(f"{number * times} {smaller}", f"{number} {larger}", {}) == 1.0
    assert Numeric()(f"{number} {larger}", f"{number * times} {smaller}", {}) == 1.0
    assert Numeric()(f"{number * times + 1} {smaller}", f"{number} {larger}", {}) == 0.0


@given(st.text(max_size=60) | st.text("0123456789.,-/^ km%", max_size=30))
def test_any_text_is_judged(text):
    for expected in (42, "5 km", "3 apples"):
        for pick in ("last", "first", "only"):
            assert Numeric(pick=pick)(text, expected, {}) in (0.0, 1.0)
