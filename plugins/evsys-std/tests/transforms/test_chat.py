"""`jsonl_to_chat`."""

import pytest

from evsys import Registry
from evsys.errors import ConfigError
from evsys_runtime.data.parse import RowProblem
from evsys_std.transforms import JsonlToChat, JsonlToTasks

PAIR = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def messages(row, **params):
    (out,) = JsonlToChat(**params)([row])
    return out["messages"]


@pytest.mark.parametrize(
    ("user", "assistant"),
    [
        ("user", "assistant"),
        ("prompt", "completion"),
        ("prompt", "response"),
        ("question", "answer"),
        ("instruction", "output"),
        ("instruction", "response"),
        ("input", "output"),
    ],
)
def test_known_pairs_of_columns_need_no_parameters(user, assistant):
    assert messages({user: "Hi", assistant: "Hello", "other": 1}) == PAIR


def test_named_columns_win_and_every_column_is_kept():
    row = {"asked": "Hi", "said": "Hello", "messages": "not these", "id": 3}
    (out,) = JsonlToChat(user_column="asked", assistant_column="said")([row])
    assert out == {**row, "messages": PAIR}


def test_an_input_stands_below_its_instruction():
    row = {"instruction": "Translate.", "input": "Ahoj", "output": "Hello"}
    assert messages(row)[0]["content"] == "Translate.\n\nAhoj"
    assert messages({**row, "input": ""})[0]["content"] == "Translate."


SYSTEM = {"role": "system", "content": "Be kind."}
EARLIER = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"instruction": "Hi", "context": "Ahoj", "response": "Hello"}, [{**PAIR[0], "content": "Hi\n\nAhoj"}, PAIR[1]]),
        ({"instruction": "Hi", "input": "", "output": "Hello", "system": "Be kind."}, [SYSTEM, *PAIR]),
        ({"instruction": "Hi", "output": "Hello", "history": [["One?", "1"]]}, [*EARLIER, *PAIR]),
        ({"prompt": "Hi", "response": "Hello", "history": [["One?", 1]], "system": "Be kind."}, [SYSTEM, *EARLIER, *PAIR]),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], "system": "Be kind."}, [SYSTEM, *PAIR]),
        ({"messages": [SYSTEM, *PAIR], "system": "Be long."}, [SYSTEM, *PAIR]),
    ],
    ids=["dolly", "alpaca", "history", "all", "sharegpt", "own"],
)  # fmt: skip
def test_common_schemas_lose_nothing(row, expected):
    assert messages(row) == expected


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "Hi", "context": "Ahoj", "response": "Hello"},
        {
            "instruction": "Hi",
            "input": "Ahoj",
            "output": "Hello",
            "system": "Be kind.",
            "history": [["One?", "1"]],
        },
        {"prompt": "Hi", "completion": "Hello", "system": "Be kind."},
        {"question": "Hi", "answer": "Hello"},
    ],
)
def test_a_task_asks_what_the_same_row_trains(row):
    (task,) = JsonlToTasks()([row])
    asked = task["instruction"]
    asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    assert asked == messages(row)[:-1]


def test_a_history_that_is_no_pairs_is_refused():
    with pytest.raises(RowProblem, match="column 'history' doesn't hold pairs"):
        messages({"instruction": "Hi", "output": "Hello", "history": ["One?"]})


def test_conversations_pass_and_from_and_value_are_understood():
    assert messages({"messages": PAIR, "question": "x", "answer": "y"}) == PAIR
    talk = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    assert messages({"conversations": talk}) == PAIR
    assert messages({"talk": PAIR}, messages_column="talk") == PAIR


def test_a_system_prompt_comes_first_unless_the_row_has_its_own():
    system = {"role": "system", "content": "Be brief."}
    assert messages({"messages": PAIR}, system_prompt="Be brief.") == [system, *PAIR]
    assert messages({"prompt": "Hi", "completion": "Hello"}, system_prompt="Be brief.") == [system, *PAIR]
    own = [{"role": "system", "content": "Be long."}, *PAIR]
    assert messages({"messages": own}, system_prompt="Be brief.") == own
    row = {"messages": PAIR, "rules": "Be kind."}
    assert messages(row, system_column="rules", system_prompt="x")[0]["content"] == "Be kind."
    assert messages({"messages": PAIR}, system_column="rules", system_prompt="Be brief.")[0] == system


def test_values_that_are_no_texts_are_written_as_json():
    assert messages({"question": "2+2", "answer": 4})[1]["content"] == "4"
    assert messages({"question": "q", "answer": {"tool": "žluť"}})[1]["content"] == '{"tool": "žluť"}'


@pytest.mark.parametrize(
    ("row", "params", "problem"),
    [
        ({"text": "x"}, {}, "no messages and no known pair of columns in text"),
        ({}, {}, "the row has no columns"),
        ({"q": "x"}, {"user_column": "q", "assistant_column": "a"}, "no column 'a'; the row has q"),
        ({"question": "x", "answer": " "}, {}, "column 'answer' is empty"),
        ({"question": None, "answer": "y"}, {}, "column 'question' is empty"),
        ({"messages": []}, {"messages_column": "messages"}, "column 'messages' is empty"),
        ({"messages": "x"}, {}, "column 'messages' holds no list of messages"),
        ({"x": 1}, {"messages_column": "talk"}, "no column 'talk'"),
    ],
)
def test_a_row_without_what_is_needed_fails_or_is_left_out_and_counted(row, params, problem):
    with pytest.raises(RowProblem, match=problem):
        list(JsonlToChat(**params)([row]))
    dropping = JsonlToChat(**params, missing="drop")
    assert list(dropping([row, row])) == []
    assert list(dropping.dropped.values()) == [2]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"user_column": "q"}, "`assistant_column` or `assistant_template` is needed"),
        ({"assistant": "a"}, "`user_column` or `user_template` is needed"),
        ({"user_template": "{q}"}, "`assistant_column` or `assistant_template` is needed"),
        ({"user_template": "{q}", "user_column": "q", "assistant_column": "a"}, "give either `user_column`"),
        ({"messages_column": "m", "user_template": "{q}", "assistant_column": "a"}, "give either"),
        ({"system_template": "{q}", "system_prompt": "x"}, "give either `system_prompt`"),
        ({"system_template": "{q}", "system_column": "x"}, "give either `system_column`"),
        ({"user_template": "{q!r}", "assistant_column": "a"}, "name of a column and nothing else"),
        ({"messages_column": "m", "user_column": "q", "assistant_column": "a"}, "give either"),
    ],
)
def test_parameters_that_make_no_sense_together_are_refused(params, problem):
    with pytest.raises(ConfigError, match=problem):
        Registry().build("transform", "jsonl_to_chat", params)


def test_short_names_of_parameters_mean_the_same():
    built = Registry().build("transform", "jsonl_to_chat", {"user": "q", "assistant": "a", "system": "s"})
    assert (built.config.user_column, built.config.assistant_column, built.config.system_prompt) == (
        "q",
        "a",
        "s",
    )


def test_templates_say_what_each_side_says():
    row = {"query": "Book a room", "tool": {"slug": "rooms"}, "team": "ops"}
    assert messages(
        row,
        user_template="Query: {query}",
        assistant_template="<answer>{tool.slug}</answer>",
        system_template="You work for {team}.",
    ) == [
        {"role": "system", "content": "You work for ops."},
        {"role": "user", "content": "Query: Book a room"},
        {"role": "assistant", "content": "<answer>rooms</answer>"},
    ]
    said = messages({"prompt": "Hi", "label": 3}, user_column="prompt", assistant_template="{{{label}}}")
    assert [message["content"] for message in said] == ["Hi", "{3}"]


def test_a_column_that_a_template_needs_and_the_row_lacks_is_named():
    with pytest.raises(RowProblem, match="no column 'qeury'; the row has query, tool"):
        messages({"query": "x", "tool": "y"}, user_template="Query: {qeury}", assistant_column="tool")
    transform = JsonlToChat(user_template="{query}", assistant_template="{tool}", missing="drop")
    rows = [{"query": "x"}, {"query": " ", "tool": "y"}, {"query": "x", "tool": "y"}]
    assert len(list(transform(rows))) == 1
    assert transform.dropped == {"no column 'tool'": 1, "the text of `user_template` is empty": 1}
