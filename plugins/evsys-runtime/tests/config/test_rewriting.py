"""A file with some of its values changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import ConfigError
from evsys_runtime.config.document import loads
from evsys_runtime.config.overrides import apply
from evsys_runtime.config.report import Report
from evsys_runtime.config.rewriting import rewrite

TEXT = """# Why.
version: 1
name: "02134"   # a code
run:
  algorithm: {kind: sft, params: {learning_rate: 5.0e-3, steps: 150}}  # in flow style
  data:
    # The rows.
    path: 'rows.jsonl'
"""
SHARED = """version: 1
name: shared
runs:
  - &one {name: one, algorithm: {kind: sft, params: {steps: 4}}}
  - {<<: *one, name: two}
"""


def changed(text: str, *overrides: str) -> str:
    return rewrite(loads(text), overrides)


def test_comments_order_and_spelling_stay():
    expected = TEXT.replace("150", "160")
    assert changed(TEXT, "run.algorithm.params.steps=160") == expected
    assert changed(TEXT) == TEXT


def test_keys_that_are_missing_are_made():
    text = changed(TEXT, "metadata.benchmark.name=val", "run.algorithm.params.seed=1")
    tree = loads(text).tree
    assert tree["metadata"] == {"benchmark": {"name": "val"}}
    assert tree["run"]["algorithm"]["params"]["seed"] == 1
    assert "# The rows." in text


def test_a_shared_value_is_changed_in_its_place_alone():
    tree = loads(changed(SHARED, "runs[0].algorithm.params.steps=8")).tree
    steps = [run["algorithm"]["params"]["steps"] for run in tree["runs"]]
    assert steps == [8, 4]


def test_every_problem_is_named():
    with pytest.raises(ConfigError) as refused:
        changed(TEXT, "metadata", "algorithm.kind=dpo")
    assert [problem.source for problem in refused.value.problems] == [
        "--set algorithm.kind",
        "--set metadata",
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([TEXT, SHARED]), st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
def test_a_rewritten_file_reads_as_an_overridden_one(text, values):
    overrides = [f"metadata.{key}={json.dumps(value)}" for key, value in values.items()]
    document, report = loads(text), Report()
    wanted = apply(document, overrides, report)
    if report.problems:  # half of a surrogate pair, say
        with pytest.raises(ConfigError):
            rewrite(document, overrides)
    else:
        assert loads(rewrite(document, overrides)).tree == wanted.tree
