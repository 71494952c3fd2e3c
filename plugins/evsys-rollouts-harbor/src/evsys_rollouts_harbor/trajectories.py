"""The files left by an agent of Harbor's: the conversation in its `trajectory.json` (the ATIF format), and its
token ids.

Both come from the agent, so neither is trusted further than its shape goes: lists of different lengths are refused,
never filled up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.types import Message, ToolCall, Turn, Usage
from evsys_runtime.data.answers import split_reasoning

__all__ = ["Left", "read_left"]

_MOST_BYTES = 64 * 1024 * 1024

type _Role = Literal["system", "user", "assistant"]
_ROLES: Mapping[str, _Role] = {"agent": "assistant", "user": "user", "system": "system"}


@attrs.frozen(kw_only=True)
class Left:
    """`complaint` says why there are no turns, where token ids were there and couldn't be used."""

    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    complaint: str | None = None

    @property
    def output(self) -> str:
        """The agent's last text."""
        said = (message.content for message in reversed(self.messages) if message.role == "assistant")
        return next((text for text in said if text.strip()), "")


def read_left(folder: Path, contexts: Sequence[Any], details: Sequence[Any]) -> Left:
    """Read what is left of an agent.

    Args:
        folder: the trial's folder.
        contexts: Harbor's contexts of the agent, one for each step.
        details: the `rollout_details` taken out of these; the first of each step is the agent's own
            conversation.
    """
    files = [folder / "agent" / "trajectory.json", *sorted(folder.glob("steps/*/agent/trajectory.json"))]
    messages = tuple(message for file in files for message in _messages(file))
    answers = [message for message in messages if message.role == "assistant"]
    try:
        turns = tuple(_turns(details, answers))
        complaint = None
    except ValueError as exc:
        turns, complaint = (), f"token ids refused: {exc}"
    usage = Usage()
    for context in contexts:
        usage = usage + Usage(
            prompt_tokens=context.n_input_tokens or 0,
            completion_tokens=context.n_output_tokens or 0,
            cost_usd=context.cost_usd,
        )
    return Left(messages=messages, turns=turns, usage=usage, complaint=complaint)


def _messages(file: Path) -> Iterator[Message]:
    if file.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    steps = tree.get("steps") if isinstance(tree, Mapping) else None
    for step in steps if isinstance(steps, list) else ():
        source = step.get("source") if isinstance(step, Mapping) else None
        if isinstance(source, str) and source in _ROLES:
            yield from _step(step, _ROLES[source])


def _step(step: Mapping[str, Any], role: _Role) -> Iterator[Message]:
    reasoning, content = None, _text(step.get("message"))
    if role == "assistant":
        apart = step.get("reasoning_content")
        reasoning, content = (apart, content) if isinstance(apart, str) else split_reasoning(content)
    yield Message(
        role=role,
        content=content,
        reasoning=reasoning,
        tool_calls=tuple(_calls(step.get("tool_calls"))) if role == "assistant" else (),
    )
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, Mapping) else None
    for result in results if isinstance(results, list) else ():
        if isinstance(result, Mapping):
            yield Message(
                role="tool",
                content=_text(result.get("content")),
                tool_call_id=_id(result.get("source_call_id")),
            )


def _calls(calls: Any) -> Iterator[ToolCall]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping) and isinstance(call.get("function_name"), str):
            arguments = call.get("arguments")
            usable = arguments if isinstance(arguments, Mapping | str) else {}
            yield ToolCall(name=call["function_name"], arguments=usable, id=_id(call.get("tool_call_id")))


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return value if isinstance(value, str) else ""


def _turns(details: Sequence[Any], answers: Sequence[Message]) -> Iterator[Turn]:
    """One turn for each call of the model in the agent's own conversation.

    Raises:
        ValueError: lists that ought to be of one length aren't.
    """
    lists = [_lists(detail) for detail in details]
    found = [
        turn for prompts, tokens, logprobs in lists for turn in zip(prompts, tokens, logprobs, strict=True)
    ]
    messages = list(answers) if len(answers) == len(found) else [Message(role="assistant")] * len(found)
    for number, ((prompt, tokens, logprobs), message) in enumerate(zip(found, messages, strict=True)):
        if len(tokens) != len(logprobs):
            raise ValueError(f"turn {number} has {len(tokens)} tokens and {len(logprobs)} logprobs")
        if not all(math.isfinite(logprob) for logprob in logprobs):
            raise ValueError(f"turn {number} has logprobs that are not finite numbers")
        yield Turn(
            message=message, prompt_tokens=tuple(prompt), tokens=tuple(tokens), logprobs=tuple(logprobs)
        )


def _lists(detail: Mapping[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    prompts, tokens, logprobs = (
        list(detail.get(name) or []) for name in ("prompt_token_ids", "completion_token_ids", "logprobs")
    )
    if not len(prompts) == len(tokens) == len(logprobs):
        raise ValueError(
            f"{len(prompts)} prompts, {len(tokens)} completions, {len(logprobs)} lists of logprobs"
        )
    return prompts, tokens, logprobs
