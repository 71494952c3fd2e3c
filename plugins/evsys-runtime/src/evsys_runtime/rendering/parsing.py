"""A sampled text back into a message: reasoning, tool calls, and what is left as content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from evsys.types import Message, ToolCall

__all__ = ["OPEN_THINK", "parse_answer", "parse_tool_calls"]

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def parse_answer(
    text: str, *, reasoning: bool = True, thinking: bool = False, tool_calls: bool = True
) -> Message:
    """The assistant message that `text` is.

    Args:
        text: what was sampled, end token removed.
        reasoning: look for `<think>...</think>` at the start. An opened block that never closes is all reasoning.
        thinking: the prompt opened the block already, so the text starts inside it.
        tool_calls: look for `<tool_call>{json}</tool_call>`; a malformed one stays in the content as it was written.
    """
    thought = None
    if reasoning:
        thought, text = _split_reasoning(text, thinking=thinking)
    calls: tuple[ToolCall, ...] = ()
    if tool_calls:
        calls, text = parse_tool_calls(text)
    return Message(role="assistant", content=text, reasoning=thought, tool_calls=calls)


def _split_reasoning(text: str, *, thinking: bool) -> tuple[str | None, str]:
    start = text.lstrip()
    if start.startswith(OPEN_THINK):
        body = start[len(OPEN_THINK) :]
    elif thinking:
        body = text
    else:
        return None, text
    thought, closed, rest = body.partition(CLOSE_THINK)
    return thought.strip("\n") or None, rest.lstrip("\n") if closed else ""


def parse_tool_calls(text: str) -> tuple[tuple[ToolCall, ...], str]:
    """The well-formed calls of a text in their order, and the text without them."""
    calls = []
    kept = []
    end = 0
    for match in _CALL.finditer(text):
        call = _call(match[1])
        if call is None:
            continue
        calls.append(call)
        kept.append(text[end : match.start()])
        end = match.end()
    if not calls:
        return (), text
    return tuple(calls), "".join([*kept, text[end:]]).strip()


def _call(source: str) -> ToolCall | None:
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    arguments: Any = value.get("arguments", {})
    if not isinstance(arguments, Mapping | str):
        return None
    identity = value.get("id")
    return ToolCall(
        name=value["name"], arguments=arguments, id=identity if isinstance(identity, str) else None
    )
