"""Texts that are not read as they look: numbers that lose their spelling, variables in keys where none is put in."""

from __future__ import annotations

import pytest

TEXT = """\
version: 1
name: x
metadata:
  hypothesis: HYPOTHESIS
  benchmark: {name: word, path: data/val.jsonl, metrics: [mean_reward], system_prompt: "PROMPT"}
run:
  data:
    rows:
      - {prompt: zip, completion: FIRST}
      - {prompt: zip, completion: SECOND}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 2, notes: NOTES}}
  backend: {kind: mock}
"""


def text(**values: str) -> str:
    found = TEXT
    usual = {"hypothesis": "it learns", "prompt": "be brief", "first": "a", "second": "b", "notes": "none"}
    for name, value in (usual | values).items():
        found = found.replace(name.upper(), value)
    return found


@pytest.mark.parametrize(
    ("spelt", "value"),
    [("02134", "2134"), ("1.10", "1.1"), ("0x1F", "31"), ("+5", "5"), ("1e3", "1000.0"), ("0o17", "15")],
)
def test_a_scalar_of_a_row_that_loses_its_spelling_is_reported_with_row_and_column(load, spelt, value):
    (found,) = load(text(first=spelt)).warnings
    assert found == (
        f"exp.yaml:9:23: $.run.data.rows[0].completion: {spelt} is read as the number {value}; "
        f'if it is text, write it in quotes: "{spelt}"'
    ).replace("exp.yaml", found.split(":")[0])


def test_values_of_one_column_are_reported_together(load):
    (found,) = load(text(first="1.10", second="007")).warnings
    assert "rows[0].completion: 1.10 is read as the number 1.1, as are 1 more of its column;" in found


@pytest.mark.parametrize(
    "spelt", ["'02134'", '"1.10"', "2134", "-3", "1.5", "true", "null", "~", "v1.10", "2026-01-01"]
)
def test_what_keeps_its_spelling_is_not_reported(load, spelt):
    assert load(text(first=spelt)).warnings == ()


def test_capital_words_of_yaml_are_reported_in_rows(load):
    (found,) = load(text(first="NULL")).warnings
    assert "NULL is read as null" in found


def test_a_leading_zero_in_params_is_reported(load):
    (found,) = load(text().replace("steps: 2", "steps: 010")).warnings
    assert "$.run.algorithm.params.steps: 010 is read as the number 10" in found


@pytest.mark.parametrize(
    ("path", "value"), [("name", "1.10"), ("metadata.hypothesis", "007"), ("run.tags", "[0x1F]")]
)
def test_the_hint_for_an_option_is_one_that_works(problems, load, path, value):
    (found,) = problems(text(), f"{path}={value}")
    if value.startswith("["):
        assert "expected text, got 31" in found
        return
    assert found.endswith(f"write --set {path}='\"{value}\"'")
    load(text(), f'{path}="{value}"')  # as a shell hands it over


def test_an_option_that_sets_a_row_is_reported_by_its_name(load):
    (found,) = load(text(), "run.data.rows[0].completion=02134").warnings
    assert found == (
        "--set run.data.rows[0].completion: $.run.data.rows[0].completion: 02134 is read as the number 2134; "
        "if it is text, write --set run.data.rows[0].completion='\"02134\"'"
    )


def test_an_option_that_replaces_such_a_value_ends_the_warning(load):
    assert load(text(first="02134"), 'run.data.rows[0].completion="02134"').warnings == ()


@pytest.mark.parametrize("values", [{"hypothesis": "does ${HOME} help"}])
def test_a_variable_in_a_key_where_none_is_put_in_is_reported(load, values):
    (found,) = load(text(**values)).warnings
    assert found.endswith(
        "$.metadata.hypothesis: ${HOME} stays as it is written: variables are put into plugin params and `system_prompt` only"
    )


@pytest.mark.parametrize(
    "values", [{"prompt": "at ${HOME}"}, {"notes": "'at ${HOME}'"}, {"first": "'${HOME}'"}]
)
def test_a_variable_in_params_a_system_prompt_or_a_row_is_not(load, values):
    assert load(text(**values)).warnings == ()


def test_a_variable_of_a_system_prompt_that_is_not_set_is_a_problem(problems, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    (found,) = problems(text(prompt="at ${NOWHERE}"))
    assert (
        "$.metadata.benchmark.system_prompt: the environment variable NOWHERE isn't set; export NOWHERE=..."
        in found
    )
