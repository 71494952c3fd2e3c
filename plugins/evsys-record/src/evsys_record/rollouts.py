"""Rollouts as JSON values and back. Token ids and logprobs come back exactly; what has its default is left out of
messages and turns, which are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evsys.types import Message, NoScore, Rollout, Score, ToolCall, Turn, Usage
from evsys_record.encoding import field_values

__all__ = ["rollout_from_tree", "rollout_tree"]


def rollout_tree(rollout: Rollout) -> dict[str, Any]:
    """JSON values of a rollout, all its own fields included. A score has `value`, a missing one has `reason`."""
    return {
        "task_id": rollout.task_id,
        "sample_index": rollout.sample_index,
        "score": field_values(rollout.score),
        "output": rollout.output,
        "error": rollout.error,
        "truncated": rollout.truncated,
        "timed_out": rollout.timed_out,
        "policy_version": rollout.policy_version,
        "usage": field_values(rollout.usage),
        "metadata": rollout.metadata,
        "messages": [_message_tree(message) for message in rollout.messages],
        "turns": [_turn_tree(turn) for turn in rollout.turns],
    }


def _message_tree(message: Message) -> dict[str, Any]:
    tree: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        tree["reasoning"] = message.reasoning
    if message.tool_calls:
        tree["tool_calls"] = [field_values(call) for call in message.tool_calls]
    for name in ("tool_call_id", "name", "weight"):
        value = getattr(message, name)
        if value is not None:
            tree[name] = value
    return tree


def _turn_tree(turn: Turn) -> dict[str, Any]:
    tree: dict[str, Any] = {"message": _message_tree(turn.message), "finish_reason": turn.finish_reason}
    for name in ("prompt_tokens", "tokens", "logprobs", "policy_version"):
        value = getattr(turn, name)
        if value is not None:
            tree[name] = value
    return tree


def rollout_from_tree(tree: Mapping[str, Any]) -> Rollout:
    """The rollout that `rollout_tree` took apart. Sequences come back as tuples."""
    score = dict(tree["score"])
    if score.get("usage") is not None:
        score["usage"] = Usage(**score["usage"])
    return Rollout(
        **{
            **tree,
            "score": Score(**score) if "value" in score else NoScore(**score),
            "usage": Usage(**tree["usage"]),
            "messages": tuple(_message(message) for message in tree["messages"]),
            "turns": tuple(_turn(turn) for turn in tree["turns"]),
        }
    )


def _message(tree: Mapping[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in tree.get("tool_calls", ()))
    return Message(**{**tree, "tool_calls": calls})


def _turn(tree: Mapping[str, Any]) -> Turn:
    numbers = {name: _numbers(tree[name]) for name in ("prompt_tokens", "tokens", "logprobs") if name in tree}
    return Turn(
        message=_message(tree["message"]),
        finish_reason=tree["finish_reason"],
        policy_version=tree.get("policy_version"),
        **numbers,
    )


def _numbers(values: Sequence[float | None]) -> tuple[Any, ...]:
    """Null represents a number that wasn't finite."""
    return tuple(float("nan") if value is None else value for value in values)
