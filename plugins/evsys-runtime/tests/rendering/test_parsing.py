import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import ToolCall
from evsys_runtime.rendering.parsing import parse_answer, parse_tool_calls

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_calls_leave_the_text_around_them():
    calls, text = parse_tool_calls(f"first\n{CALL}\n{CALL}\nlast")
    assert calls == (ToolCall(name="add", arguments={"a": 1}),) * 2
    assert text == "first\n\n\nlast"


def test_a_call_may_lack_arguments_or_write_them_as_text_and_may_have_an_id():
    calls, text = parse_tool_calls(
        '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "run", "arguments": "{broken", "id": "7"}</tool_call>'
    )
    assert calls == (ToolCall(name="now", arguments={}), ToolCall(name="run", arguments="{broken", id="7"))
    assert text == ""


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        '{"arguments": {}}',
        '{"name": 3}',
        '{"name": ""}',
        '{"name": "f", "arguments": [1]}',
        "",
        "[" * 100000,
    ],
)
def test_a_malformed_call_stays_text(body: str):
    text = f"  a <tool_call>{body}</tool_call> b "
    assert parse_tool_calls(text) == ((), text)


def test_a_malformed_call_beside_a_good_one_stays_text():
    calls, text = parse_tool_calls(f"<tool_call>{{</tool_call>{CALL}")
    assert [call.name for call in calls] == ["add"]
    assert text == "<tool_call>{</tool_call>"


@pytest.mark.parametrize("text", ["<tool_call>", "</tool_call>", '<tool_call>{"name": "f"}'])
def test_an_unclosed_call_stays_text(text: str):
    assert parse_tool_calls(text) == ((), text)


@given(
    st.text()
    | st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f"}', "x", "\n"])
    ).map("".join)
)
def test_any_text_is_parsed_without_raising(text: str):
    for thinking in (False, True):
        message = parse_answer(text, thinking=thinking)
        assert message.role == "assistant"


@given(st.text())
def test_a_text_without_marks_is_kept_to_the_letter(text: str):
    if "<think>" not in text and "<tool_call>" not in text:
        assert parse_answer(text).content == text


def test_an_empty_thought_is_none():
    message = parse_answer("<think>\n\n</think>\n\nyes")
    assert (message.reasoning, message.content) == (None, "yes")


def test_what_a_template_does_not_know_is_not_looked_for():
    text = f"<think>a</think>{CALL}"
    assert parse_answer(text, reasoning=False, tool_calls=False).content == text
