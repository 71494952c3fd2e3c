"""Examples are the same in every run, and a finding about one of them is all that is told."""

import sys

import pytest
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from evsys_conformance.drawing import PROFILE, for_each
from evsys_conformance.findings import require

ANY = st.one_of(st.integers(), st.text(), st.floats(allow_nan=False))


def drawn():
    found = []

    def note(value):
        found.append(repr(value))

    for_each(ANY, note)
    return found


def test_there_are_25_examples_the_same_each_time():
    first = drawn()
    assert len(first) == PROFILE.max_examples == 25
    assert drawn() == first


def test_they_do_not_depend_on_what_else_is_imported(tmp_path, monkeypatch):
    """hypothesis draws constants of modules outside site-packages; a plugin under development is one."""
    before = drawn()
    constants = ", ".join(str(7_000_001 + 17 * i) for i in range(500))
    (tmp_path / "evsys_constants.py").write_text(
        f"NUMBERS = [{constants}]\nWORDS = ['hapax']\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import evsys_constants

    assert drawn() == before
    monkeypatch.delitem(sys.modules, evsys_constants.__name__)


def test_hypothesis_still_has_what_is_held_still():
    """When this fails, hypothesis draws constants in another way than `drawing.py` knows."""
    assert callable(providers._get_local_constants)
    assert len(providers.Constants()) == 0
    assert type(providers.CONSTANTS_CACHE)(1024) is not providers.CONSTANTS_CACHE


def test_the_simplest_example_is_told_without_a_word_of_hypothesis():
    def small(value):
        require(not isinstance(value, int) or value < 100, "too large", seen=value)

    with pytest.raises(pytest.fail.Exception) as caught:
        for_each(ANY, small)
    assert str(caught.value) == "too large\n  seen:   100"
    assert getattr(caught.value, "__notes__", []) == []


def test_an_exception_of_the_plugin_passes_through():
    def fails(value):
        raise KeyError("accuracy")

    with pytest.raises(KeyError, match="accuracy"):
        for_each(ANY, fails)
