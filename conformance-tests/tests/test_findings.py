"""What an author reads when a check fails."""

import math
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

from evsys.protocols import KINDS
from evsys_conformance.findings import (
    Words,
    as_number,
    breach,
    place_of,
    require,
    require_close,
    require_equal,
    short_text,
)


def told(function, *arguments, **options):
    with pytest.raises(pytest.fail.Exception) as caught:
        function(*arguments, **options)
    assert caught.value.pytrace is False
    return str(caught.value)


def test_a_finding_says_what_is_wrong_what_was_seen_and_what_is_wanted():
    assert told(breach, "it is wrong", seen="a", wanted="a letter from b on") == (
        "it is wrong\n  seen:   'a'\n  wanted: a letter from b on"
    )


def test_a_value_of_none_is_seen_and_no_value_is_not():
    assert told(breach, "wrong", seen=None) == "wrong\n  seen:   None"
    assert told(require, False, "wrong") == "wrong"


def test_words_are_shown_as_they_are():
    assert told(breach, "wrong", seen=Words("5 tokens")) == "wrong\n  seen:   5 tokens"


def test_long_values_are_cut_and_lines_joined():
    assert short_text("a\nb") == "'a\\nb'"
    assert short_text(Words("a\nb")) == "a b"
    text = short_text(list(range(1000)))
    assert len(text) < 320
    assert text.endswith("... (4890 characters)")


def test_equal_values_pass():
    require_equal([1, {"a": 2}], [1, {"a": 2}], "wrong")
    require(1, "wrong")


@pytest.mark.parametrize(
    ("seen", "wanted", "place", "own", "other"),
    [
        ({"a": "x" * 200, "b": [1, 2]}, {"a": "x" * 200, "b": [1, 3]}, "['b'][1]", "2", "3"),
        ([{"a": "x" * 200}, 1], [{"a": "x" * 200}], "[1]", "1", "nothing"),
        ({"a": "x" * 200}, {"a": "x" * 200, "b": None}, "['b']", "nothing", "None"),
    ],
)
def test_of_long_values_the_first_place_that_differs_is_shown(seen, wanted, place, own, other):
    assert told(require_equal, seen, wanted, "wrong") == (
        f"wrong (at {place})\n  seen:   {own}\n  wanted: {other}"
    )


def test_short_values_are_shown_whole():
    assert told(require_equal, [1, 2], [1, 3], "wrong") == "wrong\n  seen:   [1, 2]\n  wanted: [1, 3]"


def test_numbers_are_close_within_their_bounds_and_nan_is_nan():
    require_close([1.0, math.nan], [1.001, math.nan], "wrong", rtol=0.01, atol=0.0)
    assert told(require_close, [1.0, 2.0], [1.0, 3.0], "wrong", rtol=0.1, atol=0.2) == (
        "wrong (at [1])\n  seen:   2\n  wanted: 3, give or take 0.5"
    )


def test_arrays_of_other_shapes_are_told_by_their_shapes():
    text = told(require_close, np.zeros(2), np.zeros((2, 1)), "wrong", rtol=0, atol=0)
    assert text == "wrong\n  seen:   shape (2,)\n  wanted: shape (2, 1)"


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), ("1", None), (b"1", None), (None, None), ([1.0], None)],
)
def test_a_number_is_what_evsys_takes_for_one(value, number):
    assert as_number(value) == number


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("verifier", "evsys.protocols.Verifier"),
        ("rollout_engine", "evsys.protocols.RolloutEngine"),
        ("callback", "evsys.hookspecs"),
        ("command", "evsys.protocols"),
        (None, "evsys.protocols"),
    ],
)
def test_the_place_of_a_contract_can_be_imported(kind, where):
    assert place_of(kind).partition(" and ")[0] == where
    assert resolve_name(where)


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_the_page_of_a_contract_is_there(kind):
    page = Path(__file__).parents[2] / place_of(kind).partition(" and ")[2]
    assert page.is_file(), page
