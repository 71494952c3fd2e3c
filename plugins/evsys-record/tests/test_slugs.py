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
        ("Łódź – smörgåsbord", "lodz-smorgasbord"),
    ],
)
def test_known_names(text, expected):
    assert slug(text) == expected


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("实验一", "shiyanyi"),
        ("Привет, мир", "privet-mir"),
        ("한국어 2", "hangugeo-2"),
        ("हिन्दी", "hindi"),
        ("lr 学习率 0.1", "lr-xuexilu-0.1"),
    ],
)
def test_other_scripts_are_written_as_they_are_pronounced(text, readable):
    assert re.fullmatch(rf"{re.escape(readable)}-[0-9a-f]{{8}}", slug(text))


@pytest.mark.parametrize(("first", "second"), [("实验", "试验"), ("?", "!")])
def test_texts_that_come_to_the_same_letters_stay_different(first, second):
    assert slug(first) != slug(second)


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
