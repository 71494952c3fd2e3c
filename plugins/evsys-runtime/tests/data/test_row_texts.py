"""Which texts of rows and tasks are compared, and as what."""

import pytest

from evsys.types import HarborTask, Message, VerifierSpec
from evsys_runtime.data.parse import parse_row
from evsys_runtime.data.row_texts import expected_texts, row_texts, task_texts


def test_a_conversation_gives_questions_answers_and_what_stands_beside_them():
    call = {"name": "search", "arguments": {"query": "q", "more": ["x", 1]}}
    row = parse_row(
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a", "reasoning": "r", "tool_calls": [call]},
                {"role": "tool", "content": "t", "tool_call_id": "1"},
            ]
        },
        "chat",
        0,
    )
    assert row_texts(row) == [
        ("question", "s"),
        ("question", "u"),
        ("answer", "a"),
        ("aside", "r"),
        ("aside", "q"),
        ("aside", "x"),
        ("question", "t"),
    ]


@pytest.mark.parametrize(
    ("row", "shape"),
    [
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "chat"),
        ({"prompt": "q", "demonstration": [{"role": "assistant", "content": "a"}]}, "prompt"),
        ({"task_id": "t", "instruction": "q", "verifier": {"name": "v", "expected": "a"}}, "task"),
    ],
)
def test_each_shape_has_its_question_once_and_all_its_answers(row, shape):
    texts = row_texts(parse_row(row, shape, 0))
    assert texts[:2] == [("question", "q"), ("answer", "a")]
    assert texts[2:] == ([("answer", "b")] if "rejected" in row else [])


def test_system_messages_of_a_task_are_left_out():
    said = (Message(role="system", content="s"), Message(role="user", content="u"), Message(role="user"))
    assert task_texts(HarborTask(task_id="t", instruction=said)) == [("question", "u")]


@pytest.mark.parametrize(
    ("expected", "texts"),
    [("a", ["a"]), (4, ["4"]), (["a", 2.5], ["a", "2.5"]), (True, []), (None, []), ({"a": "b"}, [])],
)
def test_expected_answers_are_texts_and_numbers(expected, texts):
    task = HarborTask(task_id="t", instruction="q", verifier=VerifierSpec(name="v", expected=expected))
    assert expected_texts(task) == texts


def test_what_is_no_row_is_refused():
    with pytest.raises(TypeError, match="a dict is not a row"):
        row_texts({})
