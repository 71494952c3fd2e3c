import json

from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Message, ToolCall
from evsys_runtime.serving.messages import message_from_wire, message_to_wire

names = st.text(min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)
calls = st.builds(ToolCall, name=names, arguments=st.dictionaries(names, json_values, max_size=3), id=names)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
    content=st.text(max_size=20),
    reasoning=st.none() | st.text(max_size=20),
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | names,
    name=st.none() | names,
)


@given(messages)
def test_a_message_comes_through_the_wire_unchanged(message):
    assert message_from_wire(json.loads(json.dumps(message_to_wire(message)))) == message


def test_arguments_that_are_no_object_stay_as_the_model_wrote_them():
    for written in ("{'a': 1}", "[1]", "{"):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
        read = message_from_wire({"role": "assistant", "content": None, "tool_calls": [call]})
        assert read.tool_calls == (ToolCall(name="f", arguments=written, id="c"),)


def test_no_arguments_are_an_empty_object():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert message_from_wire({"role": "assistant", "tool_calls": [call]}).tool_calls[0].arguments == {}
