"""What is read of an agent's own records."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evsys.types import Message, ToolCall, Turn
from evsys_rollouts_harbor.trajectories import read_left

STEPS = [
    {"step_id": 1, "source": "user", "message": "Count."},
    {
        "step_id": 2,
        "source": "agent",
        "message": "One moment.",
        "reasoning_content": "hm",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "wc", "arguments": {"file": "x"}}],
        "observation": {"results": [{"source_call_id": "c1", "content": "3"}]},
    },
    {"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "Three."}]},
]


def write(folder: Path, value: object, name: str = "agent") -> Path:
    file = folder / name / "trajectory.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder


def context(**numbers):
    return SimpleNamespace(**{"n_input_tokens": None, "n_output_tokens": None, "cost_usd": None, **numbers})


def test_a_conversation_with_tools_becomes_messages(tmp_path):
    left = read_left(write(tmp_path, {"steps": STEPS}), [], [])
    assert left.messages == (
        Message(role="user", content="Count."),
        Message(
            role="assistant",
            content="One moment.",
            reasoning="hm",
            tool_calls=(ToolCall(name="wc", arguments={"file": "x"}, id="c1"),),
        ),
        Message(role="tool", content="3", tool_call_id="c1"),
        Message(role="assistant", content="Three."),
    )
    assert left.output == "Three."


def test_the_steps_of_a_task_follow_each_other(tmp_path):
    for step in ("a", "b"):
        write(tmp_path, {"steps": [{"source": "agent", "message": step}]}, f"steps/{step}/agent")
    assert [message.content for message in read_left(tmp_path, [], []).messages] == ["a", "b"]


def test_usage_is_the_sum_of_what_the_agent_told(tmp_path):
    contexts = [context(n_input_tokens=3, n_output_tokens=2, cost_usd=0.5), context(n_input_tokens=4)]
    usage = read_left(tmp_path, contexts, []).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd) == (7, 2, 0.5)


def test_token_ids_become_turns_with_their_messages(tmp_path):
    detail = {"prompt_token_ids": [[1], [1, 2, 3]], "completion_token_ids": [[2], [4, 5]], "logprobs": [[-1.0], [-2.0, -3.0]]}  # fmt: skip
    left = read_left(write(tmp_path, {"steps": STEPS}), [], [detail])
    assert [turn.tokens for turn in left.turns] == [(2,), (4, 5)]
    assert left.turns[1] == Turn(
        message=Message(role="assistant", content="Three."),
        prompt_tokens=(1, 2, 3),
        tokens=(4, 5),
        logprobs=(-2.0, -3.0),
    )


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"prompt_token_ids": [[1]], "completion_token_ids": [[2]], "logprobs": []}, "1 prompts, 1 completions, 0 lists"),
        ({"completion_token_ids": [[2]], "logprobs": [[-1.0]]}, "0 prompts, 1 completions"),
        ({"prompt_token_ids": [[1]], "completion_token_ids": [[2, 3]], "logprobs": [[-1.0]]}, "turn 0 has 2 tokens and 1 logprobs"),
        ({"prompt_token_ids": [[1]], "completion_token_ids": [[2]], "logprobs": [[float("nan")]]}, "not finite numbers"),
    ],
)  # fmt: skip
def test_token_ids_that_do_not_fit_are_refused_and_never_filled_up(tmp_path, detail, said):
    left = read_left(tmp_path, [], [detail])
    assert left.turns == ()
    assert said in left.complaint


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["steps", "source", "message", "tool_calls", "observation", "results"]), inner),
    max_leaves=12,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON | st.lists(st.just({"source": "agent"}) | JSON).map(lambda steps: {"steps": steps}) | st.text())
def test_whatever_an_agent_wrote_is_read_without_a_crash(tmp_path, value):
    assert isinstance(read_left(write(tmp_path, value), [], []).messages, tuple)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "secret.json").write_text(json.dumps({"steps": STEPS}), encoding="utf-8")
    (tmp_path / "agent" / "trajectory.json").symlink_to(tmp_path / "secret.json")
    assert read_left(tmp_path, [], []).messages == ()
