"""`jsonl_to_tasks` and `template`."""

import pytest

from evsys_runtime.data.parse import RowProblem, parse_row
from evsys_std.transforms import JsonlToTasks, Template


def one(transform, row):
    (out,) = transform([row])
    return out


def test_known_columns_become_a_task_that_parses():
    row = {"id": "q7", "question": "2+2?", "answer": "4", "topic": "sums"}
    task = parse_row(one(JsonlToTasks(), row), "task", 0)
    assert task.task_id == "q7"
    assert task.instruction == "2+2?"
    assert (task.verifier.name, task.verifier.expected) == ("exact_match", "4")
    assert task.metadata == row


def test_columns_templates_and_verifier_can_be_named():
    transform = JsonlToTasks(
        instruction_template="Which intent is this? {text}",
        expected_column="category",
        id_column="meta.key",
        verifier="contains",
        verifier_params={"ignore_case": True},
        system_prompt="One word.",
    )
    out = one(transform, {"text": "Where is my card?", "category": "card_arrival", "meta": {"key": 12}})
    assert out["task_id"] == "12"
    assert out["instruction"] == [
        {"role": "system", "content": "One word."},
        {"role": "user", "content": "Which intent is this? Where is my card?"},
    ]
    assert out["verifier"] == {
        "name": "contains",
        "expected": "card_arrival",
        "params": {"ignore_case": True},
    }


def test_an_expectation_keeps_its_type_and_a_template_makes_text():
    row = {"question": "q", "tools": ["a", "b"]}
    assert one(JsonlToTasks(expected_column="tools"), row)["verifier"]["expected"] == ["a", "b"]
    assert one(JsonlToTasks(expected_template="{tools}!"), row)["verifier"]["expected"] == '["a", "b"]!'


def test_an_id_made_from_the_content_does_not_depend_on_the_place():
    rows = [{"question": "a", "answer": "1"}, {"question": "b", "answer": "1"}]
    ids = [task["task_id"] for task in JsonlToTasks()(rows)]
    assert [task["task_id"] for task in JsonlToTasks()(rows[::-1])] == ids[::-1]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("row", "params", "problem"),
    [
        ({"answer": "x"}, {}, "no instruction in answer"),
        ({"question": "x"}, {}, "no expectation in question"),
        ({"question": "x", "answer": ""}, {"expected_column": "answer"}, "column 'answer' is empty"),
        ({"question": "x", "answer": "y"}, {"id_column": "key"}, "no column 'key'"),
        ({"question": "x", "answer": "y"}, {"instruction_template": "{text}"}, "no column 'text'"),
    ],
)
def test_a_row_without_what_is_needed_fails_or_is_left_out(row, params, problem):
    with pytest.raises(RowProblem, match=problem):
        list(JsonlToTasks(**params)([row]))
    dropping = JsonlToTasks(**params, missing="drop")
    assert list(dropping([row])) == []
    assert sum(dropping.dropped.values()) == 1


def test_a_column_and_a_template_for_one_thing_are_refused():
    with pytest.raises(ValueError, match="give either `instruction_column` or `instruction_template`"):
        JsonlToTasks(instruction_column="a", instruction_template="{a}")


# --- template ---------------------------------------------------------------------------------------------------


def test_columns_are_put_into_the_text():
    transform = Template(template="{{Q}} {question} ({score}, {meta.level}, {tags})", column="text")
    row = {"question": "Why?", "score": 0.5, "meta": {"level": "žluť"}, "tags": ["a"]}
    assert one(transform, row)["text"] == '{Q} Why? (0.5, žluť, ["a"])'


def test_a_column_whose_name_has_a_dot_comes_before_a_nested_one():
    assert one(Template(template="{a.b}", column="x"), {"a.b": "plain", "a": {"b": "nested"}})["x"] == "plain"


@pytest.mark.parametrize(
    "template", ["{a!r}", "{a:>10}", "{a[0]}", "{}", "{ }", "{a", "a}", "{a:{b}}", "{0[x]}"]
)
def test_nothing_but_names_of_columns_stands_in_braces(template):
    with pytest.raises(ValueError, match="template"):
        Template(template=template, column="x")


def test_attributes_of_values_are_out_of_reach():
    row = {"a": "text"}
    with pytest.raises(RowProblem, match=r"no column 'a\.__class__'"):
        list(Template(template="{a.__class__}", column="x")([row]))
    with pytest.raises(RowProblem, match=r"no column 'a\.upper'"):
        list(Template(template="{a.upper}", column="x")([row]))


@pytest.mark.parametrize(
    ("row", "problem"), [({"b": 1}, "no column 'a'"), ({"a": None}, "column 'a' is null")]
)
def test_a_missing_value_fails_drops_or_is_empty(row, problem):
    with pytest.raises(RowProblem, match=problem):
        list(Template(template="[{a}]", column="x")([row]))
    dropping = Template(template="[{a}]", column="x", missing="drop")
    assert list(dropping([row])) == []
    assert dropping.dropped == {problem: 1}
    assert one(Template(template="[{a}]", column="x", missing="empty"), row)["x"] == "[]"
