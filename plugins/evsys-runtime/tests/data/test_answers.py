import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import ToolCall
from evsys_runtime.data.answers import answer_text, parse_answer, read_tool_calls

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_calls_leave_the_text_around_them():
    calls, text = read_tool_calls(f"first\n{CALL}\n{CALL}\nlast")
    assert calls == (ToolCall(name="add", arguments={"a": 1}),) * 2
    assert text == "first\n\n\nlast"


def test_a_call_may_lack_arguments_or_write_them_as_text_and_may_have_an_id():
    calls, text = read_tool_calls(
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
    assert read_tool_calls(text) == ((), text)


def test_a_malformed_call_beside_a_good_one_stays_text():
    calls, text = read_tool_calls(f"<tool_call>{{</tool_call>{CALL}")
    assert [call.name for call in calls] == ["add"]
    assert text == "<tool_call>{</tool_call>"


@pytest.mark.parametrize("text", ["<tool_call>", "</tool_call>", '<tool_call>{"name": '])
def test_a_tag_without_a_call_stays_text(text: str):
    assert read_tool_calls(text) == ((), text)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('<tool_call>{"name": "f"}', ""),
        ('First.\n<tool_call>\n{"name": "f"}\n', "First."),
        ('<tool_call>{"name": "f"}\nDone.', "Done."),
        ('<tool_call>```json\n{"name": "f", "parameters": {}}\n```</tool_call>', ""),
        ('<tool_call>[{"name": "f"}]</tool_call>', ""),
        ('<tool_call>{"type": "function", "function": {"name": "f", "arguments": "{}"}}</tool_call>', ""),
    ],
)
def test_a_tagged_call_is_read_in_the_forms_that_models_write(text: str, content: str):
    calls, rest = read_tool_calls(text)
    assert ([call.name for call in calls], rest) == (["f"], content)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"name": "f"}', ""),
        ('[{"name": "f", "arguments": {}}]', ""),
        ('```json\n{"name": "f"}\n```', ""),
        ('I call it:\n```\n{"name": "f", "arguments": {}}\n```\nnow.', "I call it:\n\nnow."),
        ('I will call {"name": "f", "arguments": {"a": {"b": 1}}} now.', "I will call  now."),
    ],
)
def test_untagged_calls_are_read_on_request_alone(text: str, content: str):
    assert read_tool_calls(text) == ((), text)
    calls, rest = read_tool_calls(text, untagged=True)
    assert ([call.name for call in calls], rest) == (["f"], content)


@pytest.mark.parametrize(
    "text", ['The user {"name": "Bob"} is new.', "[1, 2]", "no call", '{"name": "f"', "{" * 5000]
)
def test_json_that_is_not_a_call_stays_text(text: str):
    assert read_tool_calls(text, untagged=True) == ((), text)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>a</think>b", "a", "b"),
        (" \n<think>\na\n</think>\n\nb", "a", "b"),
        ("<think>never ends", "never ends", ""),
        ("<think>a</think>b\n<think>c</think>\nd", "a\n\nc", "b\n\nd"),
        ("b\n<think>cut off", "cut off", "b"),
        ("a\n</think>\n\nb", "a", "b"),
        ("Write <think> and </think> around it.", None, "Write <think> and </think> around it."),
        ("Close it with `</think>` here.", None, "Close it with `</think>` here."),
    ],
)
def test_reasoning_is_separated_from_the_content(text: str, reasoning: str | None, content: str):
    message = parse_answer(text)
    assert (message.reasoning, message.content) == (reasoning, content)


def test_a_call_in_the_reasoning_is_not_a_call():
    message = parse_answer(f"<think>maybe {CALL}</think>No call.")
    assert (message.tool_calls, message.content) == ((), "No call.")


def test_reasoning_tags_are_chosen_by_the_caller():
    message = parse_answer("[THINK]a[/THINK]b", tags=("[THINK]", "[/THINK]"))
    assert (message.reasoning, message.content) == ("a", "b")


@given(st.text("abc \n"), st.text("abc \n"))
def test_a_written_out_message_is_read_back(reasoning: str, content: str):
    message = parse_answer(f"<think>\n{reasoning}\n</think>\n\n{content}")
    again = parse_answer(answer_text(message))
    assert (again.reasoning, again.content) == (message.reasoning, message.content)


@given(
    st.text()
    | st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f"}', "x", "\n"])
    ).map("".join)
)
def test_any_text_is_parsed_without_raising(text: str):
    for opened in (False, True):
        message = parse_answer(text, opened=opened)
        assert message.role == "assistant"


@given(st.text())
def test_a_text_without_marks_is_kept_to_the_letter(text: str):
    if not any(mark in text for mark in ("<think>", "</think>", "<tool_call>")):
        assert parse_answer(text).content == text


def test_an_empty_thought_is_none():
    message = parse_answer("<think>\n\n</think>\n\nyes")
    assert (message.reasoning, message.content) == (None, "yes")


def test_reading_can_be_turned_off():
    text = f"<think>a</think>{CALL}"
    assert parse_answer(text, tags=None, tool_calls=False).content == text
