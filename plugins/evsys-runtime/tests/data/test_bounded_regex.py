"""Patterns match as in `re`, in no more than their time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_runtime.data import bounded_regex
from evsys_runtime.data.bounded_regex import compile_pattern, search


@pytest.fixture
def asked(monkeypatch):
    """The patterns that a process was asked for; each answer is True."""
    patterns = []

    class Process:
        def ask(self, request, timeout_seconds, what):
            patterns.append(request[0])
            return True

    monkeypatch.setattr(bounded_regex, "_matcher", Process())
    return patterns


def matches(pattern, text, **options):
    return search(pattern, 0, text, **{"full": False, "timeout_seconds": 10} | options)


PIECES = st.sampled_from(
    ["a", "b", ".", "^", "$", r"\b", r"\d", "[ab]", "[^a*]", "[]a+]", r"\*", "(?:a|b)", "(a)", "(?=a)", "a+", "b*", "(?:ab)?", "a{2}"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=6).map("".join), st.text("ab*]1", max_size=8), st.booleans())
def test_a_pattern_matches_as_in_re(pattern, text, full):
    expected = re.fullmatch(pattern, text) if full else re.search(pattern, text)
    assert matches(pattern, text, full=full) is (expected is not None)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(?:a?){9}", r"\s+$", "a.*b", "x{3}", "(a|b)(a|b)(a|b)(a|b)"]
)
def test_what_backtracking_could_multiply_is_matched_elsewhere(asked, pattern):
    assert matches(pattern, "a")
    assert asked == [pattern]


@pytest.mark.parametrize(
    "pattern",
    ["^http", "foo|bar", r"\bword\b", "[*+?{]", r"a\+b\?", "(?i:Yes|no)", "(?=a)b", "[]*]", r"[\]*]"],
)
def test_what_takes_no_longer_than_its_text_is_matched_here(asked, pattern):
    matches(pattern, "a word")
    assert asked == []


def test_a_match_that_takes_too_long_is_stopped_and_the_next_one_works():
    with pytest.raises(TimeoutError, match=r"the pattern '\(a\+\)\+\$' took longer than 0\.1 s"):
        matches("(a+)+$", "a" * 40 + "b", timeout_seconds=0.1)
    assert matches("(a+)+$", "aaa")


def test_what_is_no_pattern_is_refused():
    for pattern in ("(", "a{3,1}", "x" * 10 + "["):
        with pytest.raises(ValueError, match="is not a regular expression"):
            compile_pattern(pattern)
