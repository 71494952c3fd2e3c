import json

from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import Message, NoScore, Rollout, Score, ToolCall, Turn, Usage
from evsys_record.encoding import encode_record
from evsys_record.rollouts import rollout_from_tree, rollout_tree

numbers = st.floats(allow_nan=False, allow_infinity=False)
mappings = st.dictionaries(st.text(), st.integers() | st.text(), max_size=2)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.text(),
    reasoning=st.none() | st.text(),
    tool_calls=st.lists(
        st.builds(ToolCall, name=st.text(), arguments=mappings | st.text(), id=st.none() | st.text()),
        max_size=2,
    ).map(tuple),
    tool_call_id=st.none() | st.text(),
    name=st.none() | st.text(),
    weight=st.none() | numbers,
)
tokens = st.none() | st.lists(st.integers(0, 50_000), max_size=4).map(tuple)
turns = st.builds(
    Turn,
    message=messages,
    prompt_tokens=tokens,
    tokens=tokens,
    logprobs=st.none() | st.lists(numbers, max_size=4).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", "error"]),
)
usages = st.builds(
    Usage,
    prompt_tokens=st.integers(0, 9),
    seconds=numbers,
    cost_usd=st.none() | numbers,
    unpriced=st.integers(0, 9),
)
rollouts = st.builds(
    Rollout,
    task_id=st.text(),
    sample_index=st.integers(0, 100),
    messages=st.lists(messages, max_size=3).map(tuple),
    turns=st.lists(turns, max_size=2).map(tuple),
    output=st.text(),
    score=st.builds(
        Score,
        value=numbers,
        components=st.dictionaries(st.text(), numbers, max_size=2),
        metadata=mappings,
        usage=st.none() | usages,
    )
    | st.builds(
        NoScore,
        reason=st.text(),
        retryable=st.booleans(),
        boundary=st.none() | st.text(),
        usage=st.none() | usages,
    ),
    error=st.none() | st.text(),
    truncated=st.booleans(),
    timed_out=st.booleans(),
    policy_version=st.none() | st.integers(0, 9),
    usage=usages,
    metadata=mappings,
)


@given(rollouts)
@settings(deadline=None)
def test_a_rollout_comes_back_from_its_line(rollout):
    line = encode_record(rollout_tree(rollout))
    assert "\n" not in line
    assert rollout_from_tree(json.loads(line)) == rollout


def test_arrays_of_tokens_and_logprobs_come_back_exactly():
    import numpy as np

    logprobs = np.log(np.random.default_rng(0).random(5)).astype(np.float32)
    turn = Turn(message=Message(role="assistant"), tokens=np.arange(5), logprobs=logprobs)
    rollout = Rollout(task_id="a", sample_index=0, turns=(turn,))
    back = rollout_from_tree(json.loads(encode_record(rollout_tree(rollout))))
    assert back.turns[0].tokens == (0, 1, 2, 3, 4)
    assert np.array_equal(np.array(back.turns[0].logprobs, dtype=np.float32), logprobs)


def test_a_logprob_that_is_not_finite_comes_back_as_nan():
    import math

    turn = Turn(message=Message(role="assistant"), tokens=(1,), logprobs=(float("-inf"),))
    back = rollout_from_tree(
        json.loads(encode_record(rollout_tree(Rollout(task_id="a", sample_index=0, turns=(turn,)))))
    )
    assert math.isnan(back.turns[0].logprobs[0])


def test_messages_leave_out_what_they_do_not_have():
    rollout = Rollout(task_id="a", sample_index=0, messages=(Message(role="user", content="hi"),))
    assert rollout_tree(rollout)["messages"] == [{"role": "user", "content": "hi"}]
