"""Numbers as people and models write them."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_verifiers_std.quantities import MOST_DIGITS, expected_quantities, quantities_in
from evsys_verifiers_std.units import leading_unit, parse_unit


def values(text, mark="."):
    return [None if q.value is None else str(q.value) for q in quantities_in(text, mark)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("42", ["42"]),
        ("The answer is 42.", ["42"]),
        ("between 5-7", ["5", "7"]),
        ("x=-5", ["-5"]),
        ("x = - 5", ["-5"]),
        ("(\u22124)", ["-4"]),
        ("it fell to -3.5 today", ["-7/2"]),
        ("13 - 5", ["13", "5"]),
        ("- 5 apples", ["5"]),
        ("a-5", ["5"]),
        (".5 and -.25", ["1/2", "-1/4"]),
        ("1,234.5", ["2469/2"]),
        ("1\u202f234\u202f567", ["1234567"]),
        ("1_000, 2'000", ["1000", "2000"]),
        ("$1,200.50, -$5, €3", ["2401/2", "-5", "3"]),
        ("3/4 and -1/2", ["3/4", "-1/2"]),
        ("1 1/2 cups, 1½ cups, ¾", ["3/2", "3/2", "3/4"]),
        ("in 2023 1/3 of them", ["2023", "1/3"]),
        (r"\frac{1}{2}, \dfrac12, $-\frac{3}{4}$, 1\frac{1}{2}", ["1/2", "1/2", "-3/4", "3/2"]),
        (r"\boxed{42}", ["42"]),
        ("#### 1,800", ["1800"]),
        ("6.02 × 10^23", [str(602 * 10**21)]),
        (r"2\times10^{3}, 3 x 10^-2, 4·10⁵", ["2000", "3/100", "400000"]),
        ("1e5 and 2.5E-3", ["100000", "1/400"]),
        ("2^{10}, 2**3, 10⁻³", ["1024", "8", "1/1000"]),
        ("**42** 7", ["42", "7"]),
        ("10 m/s^2", ["10"]),
        ("CO2, R2D2, v1.5, x_3", []),
        ("", []),
        ("no number", []),
        ("١٢", ["12"]),
        ("1.5 million, 2.4M and 3bn", ["1500000", "2400000", "3000000000"]),
        ("2 thousand, 1.5-million, $5K, $3B", ["2000", "1500000", "5000", "3000000000"]),
        ("5K, 5 kB, 3Mx, 4 mills", ["5", "5", "3", "4"]),
        ("1 234 567 and 12 345 678.5", ["1234567", "24691357/2"]),
        ("5 100", ["5", "100"]),
        ("²", []),
    ],
)
def test_every_number_of_a_text_is_found(text, found):
    assert values(text) == found


@pytest.mark.parametrize(
    "text",
    ["1,23", "12,34,567", "1.234,5", "3.14.15", "01/05/2020", "1/0", "0^-1", "1e99999", "2^9999", "9" * 2000]
    + ["9" * 900 + "^900", "1,2,3"],
)
def test_a_number_that_can_be_read_in_two_ways_or_in_none_has_no_value(text):
    assert values(text) == [None]


@pytest.mark.parametrize(
    ("text", "found"),
    [("1.234,5", ["2469/2"]), ("3,14", ["157/50"]), ("3.14", [None]), ("-0,5 km", ["-1/2"])],
)
def test_a_comma_can_be_the_decimal_mark(text, found):
    assert values(text, ",") == found


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9)


@given(
    NUMBERS,
    st.sampled_from(["{}", "It is {}.", "**{}**", "x = {}", "\\boxed{{{}}}", "({})", "{} km", "${}$"]),
)
def test_a_decimal_is_read_exactly_wherever_it_stands(number, frame):
    for text in (f"{number:f}", f"{number:,f}"):
        [found] = list(quantities_in(frame.format(text)))
        assert found.value == Fraction(number)


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**6))
def test_a_fraction_is_read_exactly(above, below):
    assert values(f"{above}/{below}") == [str(Fraction(above, below))]
    assert values(f"\\frac{{{above}}}{{{below}}}") == [str(Fraction(above, below))]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_its_shortest_text(number):
    [found] = quantities_in(repr(number))
    [expected] = expected_quantities(number)
    assert found.value == expected.value == Fraction(Decimal(repr(number)))


@given(st.integers(1, 999), st.integers(-200, 200))
def test_scientific_notations_agree(digits, power):
    wanted = Fraction(digits) * Fraction(10) ** power
    for text in (
        f"{digits}e{power}",
        f"{digits} × 10^{power}",
        f"{digits}\\cdot 10^{{{power}}}",
        f"{digits}x10**{power}",
    ):
        assert [q.value for q in quantities_in(text)] == [wanted]


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8")) | st.text("0123456789.,-−/^*eE×x {}\\ⁿ²³½ km%$'"))
def test_any_text_is_read_and_no_value_is_out_of_bounds(text):
    for mark in (".", ","):
        for quantity in quantities_in(text, mark):
            assert quantity.value is None or quantity.value.numerator.bit_length() < 10 * MOST_DIGITS * 4


def test_a_long_answer_is_read_in_one_pass():
    """A hundred thousand numbers, and runs of what the patterns look for, are not a trap."""
    assert len(values("7 " * 100_000)) == 100_000
    for text in (
        " " * 200_000,
        "\\frac{" * 20_000,
        "1," * 50_000,
        "^ " * 50_000,
        "\\text{" + " " * 100_000,
        "1/" * 50_000,
    ):
        values(text)


# --- units ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "factor", "dimensions"),
    [
        ("km", "1000", {"m": 1}),
        ("kilometres", "1000", {"m": 1}),
        ("Kilometers", "1000", {"m": 1}),
        ("km/h", "5/18", {"m": 1, "s": -1}),
        ("kilometres per hour", "5/18", {"m": 1, "s": -1}),
        ("m/s/s", "1", {"m": 1, "s": -2}),
        ("m s^-2", "1", {"m": 1, "s": -2}),
        ("m·s⁻²", "1", {"m": 1, "s": -2}),
        ("kg*m^2/s^2", "1000", {"g": 1, "m": 2, "s": -2}),
        ("J", "1000", {"g": 1, "m": 2, "s": -2}),
        ("cm3", "1/1000000", {"m": 3}),
        ("cubic centimetres", "1/1000000", {"m": 3}),
        ("mL", "1/1000000", {"m": 3}),
        ("kWh", "3600000000", {"g": 1, "m": 2, "s": -2}),
        ("µm", "1/1000000", {"m": 1}),
        ("μm", "1/1000000", {"m": 1}),
        ("KiB", "8192", {"bit": 1}),
        ("Mbit", "1000000", {"bit": 1}),
        ("%", "1/100", {}),
        ("min", "60", {"s": 1}),
        ("mW", "1", {"g": 1, "m": 2, "s": -3}),
        ("MW", "1000000000", {"g": 1, "m": 2, "s": -3}),
        ("degrees Celsius", "1", {"celsius": 1}),
        ("° C", "1", {"celsius": 1}),
    ],
)
def test_a_unit_is_a_factor_of_base_units(text, factor, dimensions):
    assert parse_unit(text) == (Fraction(factor), tuple(sorted(dimensions.items())))


@pytest.mark.parametrize("text", ["", "apples", "5", "km of road", "m^9", "at", "^2", "kKm", "foo/s"])
def test_what_is_no_unit_is_none(text):
    assert parse_unit(text) is None


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (" m in total", "m"),
        ("km at noon", "km"),
        (" kg of sugar", "kg"),
        (" m/s on average", "m/s"),
        ("h as", "h"),
    ],
)
def test_a_unit_ends_where_the_sentence_goes_on(text, unit):
    found, end = leading_unit(text)
    assert text[:end].strip() == unit
    assert found == parse_unit(unit)


@given(
    st.sampled_from(["m", "g", "s", "W", "bit"]), st.sampled_from([("k", 3), ("M", 6), ("m", -3), ("n", -9)])
)
def test_a_prefix_is_a_power_of_ten(symbol, prefix):
    assert parse_unit(prefix[0] + symbol).factor == parse_unit(symbol).factor * Fraction(10) ** prefix[1]


# --- what is expected -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "value", "words"),
    [
        (5, "5", None),
        (0.1, "1/10", None),
        ("1/3", "1/3", None),
        ("5 apples", "5", "apples"),
        ({"value": "1,000", "unit": "widgets"}, "1000", "widgets"),
        ("$5.00", "5", None),
    ],
)
def test_an_expectation_is_a_number_with_or_without_a_unit(expected, value, words):
    [found] = expected_quantities(expected)
    assert (str(found.value), found.unit, found.words) == (value, None, words)


def test_an_expectation_can_have_a_unit_that_is_known():
    for expected in ("5 km", {"value": 5, "unit": "km"}, r"5\text{ km}"):
        assert expected_quantities(expected)[0].unit == parse_unit("km")


@pytest.mark.parametrize(
    "expected",
    [
        None,
        True,
        "",
        "none",
        "1 or 2",
        [],
        [None],
        {"unit": "m"},
        {"value": 1, "units": "m"},
        math.inf,
        math.nan,
    ]
    + [{"value": 5, "unit": 3}, {"value": "5 km", "unit": "m"}, "1,23", {"value": 5, "unit": " "}],
)
def test_an_expectation_without_one_number_is_refused(expected):
    with pytest.raises(ValueError, match="`expected`"):
        expected_quantities(expected)
