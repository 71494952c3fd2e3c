"""Rows to typed values, and what is said about rows that can't be."""

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import DataError, PluginContractError
from evsys.types import ChatMessagesRow, HarborTask, Message, PromptExample, ToolCall, VerifierSpec
from evsys_runtime.data import messages as messages_module
from evsys_runtime.data.parse import ParseReport, RowProblem, parse_row, parse_rows

USER = {"role": "user", "content": "Hi"}
BOT = {"role": "assistant", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


def chat(row, index=0):
    return parse_row(row, "chat", index)


# --- chat -------------------------------------------------------------------------------------------------------


def test_messages_become_a_row_and_other_columns_its_metadata():
    row = chat({"messages": [USER, BOT], "topic": "greeting", "score": 3}, 7)
    assert row == ChatMessagesRow(
        messages=(Message(role="user", content="Hi"), Message(role="assistant", content="Hello")),
        metadata={"topic": "greeting", "score": 3},
        row_id="7",
    )


def test_fast_values_are_real_ones():
    row = chat({"messages": [USER]})
    assert type(row) is ChatMessagesRow
    assert type(row.messages[0]) is Message
    assert hash(row.messages[0]) == hash(Message(role="user", content="Hi"))
    assert attrs.asdict(row.messages[0]) == attrs.asdict(Message(role="user", content="Hi"))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        row.messages[0].content = "changed"


@pytest.mark.parametrize(
    ("twin", "real"), [(messages_module._MessageTwin, Message), (messages_module._ChatTwin, ChatMessagesRow)]
)
def test_twins_have_every_field_of_the_real_class(twin, real):
    fields = {field.name for field in attrs.fields(real)}
    assert set(twin.__slots__) - {"__weakref__"} == fields
    made = twin("a", {}) if real is Message else twin((), {}, "0")
    defaults = real(role="a", content={}) if real is Message else real(messages=(), row_id="0")
    assert {name: getattr(made, name) for name in fields} == {
        name: getattr(defaults, name) for name in fields
    }


def test_prompt_and_completion_may_be_texts_or_messages():
    expected = (Message(role="user", content="Hi"), Message(role="assistant", content="Hello"))
    for prompt in ("Hi", [USER]):
        for completion in ("Hello", [BOT]):
            assert chat({"prompt": prompt, "completion": completion}).messages == expected


def test_a_preference_pair_has_both_sides():
    expected = (Message(role="user", content="Hi"), Message(role="assistant", content="Hello"))
    worse = (Message(role="user", content="Hi"), Message(role="assistant", content="Go away"))
    bad = {"role": "assistant", "content": "Go away"}
    for row in (
        {"prompt": "Hi", "chosen": "Hello", "rejected": "Go away"},
        {"prompt": [USER], "chosen": [BOT], "rejected": [bad]},
        {"prompt": [USER], "chosen": [USER, BOT], "rejected": [USER, bad]},
        {"chosen": [USER, BOT], "rejected": [USER, bad]},
        {"messages": [USER, BOT], "rejected": [USER, bad]},
    ):
        typed = chat(row)
        assert (typed.messages, typed.rejected) == (expected, worse)
        assert typed.metadata == {}


def test_columns_that_are_null_count_as_absent():
    row = {
        "messages": None,
        "prompt": "Hi",
        "completion": "Hello",
        "rejected": None,
        "tools": None,
        "metadata": None,
    }
    typed = chat(row)
    assert len(typed.messages) == 2
    assert typed.rejected is None
    assert typed.tools == ()
    assert typed.metadata == {"rejected": None}


def test_tool_schemas_are_kept_as_objects_or_as_json_text():
    assert chat({"messages": [USER], "tools": [TOOL]}).tools == (TOOL,)
    text = '[{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]'
    assert chat({"messages": [USER], "tools": text}).tools == (TOOL,)
    with pytest.raises(RowProblem, match="a string that is not JSON"):
        chat({"messages": [USER], "tools": "search"})


def test_a_metadata_column_joins_the_other_columns_and_wins():
    assert chat({"messages": [USER], "a": 1, "metadata": {"a": 2, "b": 3}}).metadata == {"a": 2, "b": 3}
    assert chat({"messages": [USER], "metadata": "note"}).metadata == {"metadata": "note"}


def test_a_row_id_column_names_the_row():
    row = chat({"messages": [USER], "row_id": 41}, 3)
    assert row.row_id == "41"
    assert row.metadata == {}


def test_tool_calls_are_read_in_both_spellings():
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}},
        {"name": "search", "arguments": {"q": "y"}},
        {"name": "broken", "arguments": '{"q": '},
        {"name": "none"},
    ]
    row = chat(
        {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "content": "found", "tool_call_id": "c1", "name": "search"},
            ]
        }
    )
    assert row.messages[1].tool_calls == (
        ToolCall(name="search", arguments={"q": "x"}, id="c1"),
        ToolCall(name="search", arguments={"q": "y"}),
        ToolCall(name="broken", arguments='{"q": '),
        ToolCall(name="none", arguments={}),
    )
    assert row.messages[1].content == ""
    assert row.messages[2] == Message(role="tool", content="found", tool_call_id="c1", name="search")


def test_reasoning_becomes_a_field():
    for message in (
        {"role": "assistant", "content": "4", "reasoning": "2 and 2"},
        {"role": "assistant", "content": "4", "reasoning_content": "2 and 2"},
        {"role": "assistant", "content": "<think>\n2 and 2\n</think>\n\n4"},
    ):
        assert chat({"messages": [USER, message]}).messages[1] == Message(
            role="assistant", content="4", reasoning="2 and 2"
        )


def test_think_tags_elsewhere_are_text():
    text = "The tag <think> opens a thought."
    assert chat({"messages": [USER, {"role": "assistant", "content": text}]}).messages[1].content == text
    said = {"role": "user", "content": "<think>x</think>y"}
    assert chat({"messages": [said]}).messages[0].content == "<think>x</think>y"


def test_text_parts_are_joined_and_other_parts_refused():
    parts = [{"type": "text", "text": "Hi "}, "there"]
    assert chat({"messages": [{"role": "user", "content": parts}]}).messages[0].content == "Hi there"
    with pytest.raises(RowProblem, match=r"messages\[0\]\.content\[0\] is 'image_url'"):
        chat({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})


def test_keys_that_no_model_sees_are_ignored():
    assert chat({"messages": [{**USER, "id": 5, "refusal": None, "audio": None}]}).messages == (
        Message(role="user", content="Hi"),
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "neither `messages` nor.*it has nothing else"),
        ({"mesages": [USER]}, "it has mesages; did you mean `messages` by `mesages`"),
        ({"prompt": "Hi"}, "neither `messages`"),
        ({"messages": []}, "'messages' is empty"),
        ({"messages": "Hi"}, "'messages' is a string, not a list of messages"),
        ({"messages": {"role": "user"}}, "'messages' is an object, not a list"),
        ({"messages": ["Hi"]}, r"messages\[0\] is a string, not an object"),
        ({"messages": [USER, {"content": "x"}]}, r"messages\[1\] has no `role`"),
        (
            {"messages": [{"role": "robot", "content": "x"}]},
            r"messages\[0\]\.role is 'robot'; roles are system",
        ),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "role is"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\] has no `content`"),
        ({"messages": [{"role": "user", "content": 3}]}, r"messages\[0\]\.content is a number"),
        ({"messages": [{"role": "user", "content": None}]}, "has no `content`"),
        ({"messages": [{**BOT, "weight": "x"}]}, r"messages\[0\]\.weight is 'x'"),
        ({"messages": [{**BOT, "weight": -1}]}, "not a number of at least 0"),
        ({"messages": [{**BOT, "weight": True}]}, "weight is True"),
        ({"messages": [{**BOT, "name": 3}]}, r"messages\[0\]\.name is a number"),
        ({"messages": [{**BOT, "reasoning": ["x"]}]}, "reasoning is a list"),
        ({"messages": [{**BOT, "function_call": {"name": "f"}}]}, "not supported"),
        ({"messages": [{**BOT, "tool_calls": "x"}]}, "tool_calls is a string"),
        ({"messages": [{**BOT, "tool_calls": ["x"]}]}, r"tool_calls\[0\] is a string"),
        ({"messages": [{**BOT, "tool_calls": [{"arguments": {}}]}]}, "has no `name`"),
        ({"messages": [{**BOT, "tool_calls": [{"name": "f", "arguments": 3}]}]}, "arguments is a number"),
        ({"messages": [USER], "tools": [3]}, r"tools\[0\] is a number"),
        ({"messages": [USER], "tools": 3}, "'tools' is a number"),
        ({"chosen": "a", "rejected": 3}, "'rejected' is a number"),
    ],
)
def test_what_is_wrong_with_a_chat_row_is_said(row, message):
    with pytest.raises(RowProblem, match=message):
        chat(row)


@given(
    st.lists(
        st.builds(
            Message,
            role=st.sampled_from(["system", "user", "assistant", "developer"]),
            content=st.text().filter(lambda text: "<think>" not in text),
            weight=st.none() | st.floats(0, 10),
            name=st.none() | st.text(),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_messages_survive_being_written_out_and_parsed(said):
    tree = [{key: value for key, value in attrs.asdict(message).items() if value} for message in said]
    for item, message in zip(tree, said, strict=True):
        item["content"] = message.content
        if message.weight is not None:
            item["weight"] = message.weight
    parsed = chat({"messages": tree}).messages
    assert [attrs.evolve(message, name=message.name or None) for message in parsed] == [
        attrs.evolve(message, name=message.name or None) for message in said
    ]


# --- prompt -----------------------------------------------------------------------------------------------------


def test_a_prompt_may_bring_a_demonstration():
    row = parse_row({"prompt": "Hi", "completion": "Hello", "tools": [TOOL], "topic": 1}, "prompt", 2)
    assert row == PromptExample(
        prompt=(Message(role="user", content="Hi"),),
        demonstration=(Message(role="assistant", content="Hello"),),
        tools=(TOOL,),
        metadata={"topic": 1},
        row_id="2",
    )
    assert parse_row({"prompt": "Hi"}, "prompt", 0).demonstration == ()


def test_a_conversation_is_cut_after_the_last_question():
    row = parse_row({"messages": [USER, BOT, USER, BOT, BOT]}, "prompt", 0)
    assert [message.role for message in row.prompt] == ["user", "assistant", "user"]
    assert [message.role for message in row.demonstration] == ["assistant", "assistant"]


@pytest.mark.parametrize(
    ("row", "message"), [({"x": 1}, "neither `prompt`"), ({"messages": [BOT]}, "no prompt")]
)
def test_what_is_wrong_with_a_prompt_is_said(row, message):
    with pytest.raises(RowProblem, match=message):
        parse_row(row, "prompt", 0)


# --- task -------------------------------------------------------------------------------------------------------

TASK = {"task_id": "t1", "instruction": "Add 2 and 2.", "verifier": {"name": "exact_match", "expected": "4"}}


def test_a_task_has_its_verifier_and_its_metadata():
    row = {**TASK, "topic": "sums", "metadata": {"level": 1}, "tools": [TOOL]}
    assert parse_row(row, "task", 0) == HarborTask(
        task_id="t1",
        instruction="Add 2 and 2.",
        verifier=VerifierSpec(name="exact_match", expected="4"),
        tools=(TOOL,),
        metadata={"topic": "sums", "level": 1},
    )


def test_an_instruction_may_be_messages():
    for row in ({**TASK, "instruction": [USER]}, {**TASK, "instruction": None, "messages": [USER]}):
        assert parse_row(row, "task", 0).instruction == (Message(role="user", content="Hi"),)


def test_a_number_is_a_task_id_too():
    assert parse_row({**TASK, "task_id": 12}, "task", 0).task_id == "12"


def test_the_folder_of_a_native_task_brings_its_own_tests():
    task = parse_row({"task_id": "t", "path": "tasks/t"}, "task", 0)
    assert (task.path, task.verifier, task.instruction) == ("tasks/t", None, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_id": None}, "`task_id` is null"),
        ({"task_id": " "}, "`task_id` is ' '"),
        ({"task_id": True}, "`task_id` is True"),
        ({"instruction": None}, "task 't1': no `instruction`"),
        ({"instruction": "  "}, "`instruction` is empty"),
        ({"instruction": 3}, "'instruction' is a number"),
        ({"verifier": None}, "task 't1': no `verifier`"),
        ({"verifier": "exact_match"}, "`verifier` is a string"),
        ({"verifier": {"expected": 1}}, "`verifier` has no name"),
        ({"verifier": {"name": "x", "expcted": 1}}, "unknown key 'expcted'; did you mean `expected`"),
        ({"verifier": {"name": "x", "threshold": 1}}, "settings of a verifier go under `params`"),
        ({"verifier": {"name": "x", "params": 3}}, "`verifier.params` is a number"),
        ({"metadata": 3}, "`metadata` is a number"),
        ({"path": 3}, "'path' is a number"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(change, message):
    with pytest.raises(RowProblem, match=message):
        parse_row({**TASK, **change}, "task", 0)


# --- many rows --------------------------------------------------------------------------------------------------


def test_all_bad_rows_are_reported_together_with_index_and_place():
    rows = [{"messages": [USER]}, {"text": "x"}, {"messages": []}]
    places = iter(["rows.jsonl:2", None])
    with pytest.raises(DataError) as caught:
        list(parse_rows(rows, "chat", place=lambda: next(places)))
    text = str(caught.value)
    assert text.startswith("2 rows can't be used as 'chat':\n  row 1 (rows.jsonl:2): neither `messages`")
    assert "\n  row 2: 'messages' is empty" in text
    assert "`jsonl_to_chat` makes them" in text
    assert sum(caught.value.facts["counts"].values()) == 2


def test_rows_with_one_fault_are_told_once_with_their_number():
    rows = [{"text": "x"}] * 548 + [{"messages": [USER]}, {"messages": []}, {"messages": []}]
    with pytest.raises(DataError) as caught:
        list(parse_rows(rows, "chat"))
    first, *lines = str(caught.value).splitlines()
    assert first == "550 rows can't be used as 'chat':"
    assert len(lines) == 2
    assert re.fullmatch(r"  row 0: neither `messages` .* \(and 547 more rows like it\)", lines[0])
    assert lines[1].startswith("  row 549: 'messages' is empty (and 1 more row like it)")
    assert sum(caught.value.facts["counts"].values()) == 550


def test_different_words_for_one_kind_of_fault_are_told_three_times():
    roles = ["robot", "bot", "robot", "machine", "ghost", "elf"]
    rows = [{"messages": [{"role": role, "content": "x"}]} for role in roles]
    with pytest.raises(DataError) as caught:
        list(parse_rows(rows, "chat"))
    _, *lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for line, (row, role) in zip(lines, [(0, "robot"), (1, "bot"), (3, "machine")], strict=True):
        assert line.startswith(f"  row {row}: ")
        assert f"'{role}'" in line
    assert "(and 3 more rows like it)" in lines[2]


def test_looking_ends_where_a_file_has_nothing_else():
    def endless():
        while True:
            yield {"text": "x"}

    with pytest.raises(DataError, match=r"10,000 rows can't be used.*\n.*\(and 9,999 more rows like it\)"):
        list(parse_rows(endless(), "chat"))


def test_problems_found_before_a_broken_line_are_not_lost():
    def rows():
        yield {"text": "x"}
        raise DataError("broken", source="rows.jsonl", line=2)

    with pytest.raises(DataError, match="row 0: neither"):
        list(parse_rows(rows(), "chat"))


def test_bad_rows_can_be_skipped_and_ids_have_no_gap():
    report = ParseReport()
    rows = [{"messages": [USER]}, {"text": "x"}, {"messages": [BOT]}]
    typed = list(parse_rows(rows, "chat", on_bad_row="skip", report=report))
    assert [row.row_id for row in typed] == ["0", "1"]
    assert sum(report.skipped.values()) == 1


def test_skipping_keeps_the_first_problems_and_counts_all():
    report = ParseReport()
    rows = [{"messages": [USER]}, *[{"text": "x"}] * 50]
    assert len(list(parse_rows(rows, "chat", on_bad_row="skip", report=report))) == 1
    assert sum(report.skipped.values()) == len(report.problems) == 50
    (line,) = report.problems.lines()
    assert line.endswith("(and 49 more rows like it)")


def test_an_unknown_shape_is_refused():
    with pytest.raises(
        PluginContractError, match="no shape of rows is called 'table'; known are chat, pair, prompt, task"
    ):
        list(parse_rows([], "table"))


def test_skipping_every_row_is_an_error():
    with pytest.raises(DataError, match="can't be used as 'chat'"):
        list(parse_rows([{"text": "x"}], "chat", on_bad_row="skip"))
