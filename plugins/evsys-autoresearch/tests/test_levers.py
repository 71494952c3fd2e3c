"""Levers: what they cover, and how an arm differs from the start."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_autoresearch.levers import Levers, apply_changes, changes_of, pattern_matches

LEVERS = Levers(written=("run.algorithm", "run.data.transforms", "src/**", "prompts/*.txt"))


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("run.algorithm.params.learning_rate", True),
        ("run.algorithm", True),
        ("run.algorithms", False),
        ("run.data.path", False),
        ("run.data.transforms", True),
        ("metadata.benchmark", False),
    ],
)
def test_a_path_is_covered_by_a_lever_at_or_above_it(path, covered):
    assert LEVERS.covers_path(path) is covered


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("src/transforms.py", True),
        ("src/a/b/c.py", True),
        ("prompts/a.txt", True),
        ("prompts/a/b.txt", False),
        ("src/../val.jsonl", False),
        ("/etc/passwd", False),
        ("src/.git/config", False),
        ("data/train.jsonl", False),
    ],
)
def test_a_file_is_covered_by_a_pattern_and_never_outside_of_the_project(name, covered):
    assert LEVERS.covers_file(name) is covered


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("a+b", "a+b", True),
    ],
)
def test_patterns(pattern, name, matches):
    assert pattern_matches(PurePosixPath(name), pattern) is matches


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.from_regex("[a-z]{1,3}", fullmatch=True), inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.from_regex("[a-z]{1,3}", fullmatch=True), TREES, min_size=1, max_size=3),
    st.dictionaries(st.from_regex("[a-z]{1,3}", fullmatch=True), TREES, min_size=1, max_size=3),
)
def test_changes_are_none_only_for_equal_trees(one, other):
    assert changes_of(one, one) == {}
    assert (changes_of(one, other) == {}) == (changes_of(other, one) == {})


def test_changes_lead_from_the_start_to_the_arm():
    start = {"run": {"algorithm": {"params": {"rate": 1}}, "data": {"transforms": [{"kind": "a"}]}}}
    arm = {"run": {"algorithm": {"params": {"rate": True}}, "data": {"transforms": [{"kind": "b"}]}}}
    found = changes_of(start, arm)
    assert found == {"run.algorithm.params.rate": True, "run.data.transforms": [{"kind": "b"}]}
    assert apply_changes(start, found) == arm
    assert start["run"]["algorithm"]["params"]["rate"] == 1
