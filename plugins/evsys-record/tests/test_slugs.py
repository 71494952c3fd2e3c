import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_record.slugs import MAX_LENGTH, slug

RESERVED = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Does a Higher LR help?", "does-a-higher-lr-help"),
        ("val/pass@1", "val-pass-1"),
        ("2026-01-01T12:30:00", "2026-01-01t12-30-00"),
        ("lr=0.0001,rank=8", "lr-0.0001-rank-8"),
        ("Übung  Größe", "ubung-grosse"),
        ("con", "_con"),
        ("NUL.txt", "_nul.txt"),
        ("com¹", "_com1"),
        ("../../etc", "etc"),
        ("trailing. ", "trailing"),
        ("a_b.c-d", "a_b.c-d"),
    ],
)
def test_known_names(text, expected):
    assert slug(text) == expected


def test_texts_of_which_nothing_is_left_stay_different():
    first, second = slug("实验一"), slug("实验二")
    assert first != second
    assert first.startswith("unnamed-")


def test_long_texts_stay_different():
    first, second = slug("x" * 200 + "a"), slug("x" * 200 + "b")
    assert first != second
    assert len(first) == len(second) == MAX_LENGTH


@given(st.text() | st.text("aA.-_ :/\\con ulé¹") | st.sampled_from(sorted(RESERVED)), st.integers(16, 80))
@settings(deadline=None)
def test_every_slug_is_a_portable_name(text, length):
    name = slug(text, max_length=length)
    assert re.fullmatch(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?", name)
    assert len(name) <= length
    assert name.partition(".")[0] not in RESERVED
    assert slug(name, max_length=length) == name
