"""Messages as the chat-completions protocol writes them, both ways: for the server, and for clients of other servers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from evsys.types import Message, Role, ToolCall

__all__ = ["LEAST_LOGPROB", "WireError", "message_from_wire", "message_to_wire", "messages_from_wire"]

LEAST_LOGPROB = -9999.0
"""The value that services send for a logprob that is unknown or minus infinity, which JSON can't express; others
may send a lower number. No sampled token is as unlikely.
"""

ROLES: tuple[str, ...] = get_args(Role)


class WireError(ValueError):
    """A message isn't what the protocol says; `param` is where."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def message_to_wire(message: Message) -> dict[str, Any]:
    """The JSON object of one message. Reasoning goes by `reasoning_content`; a call without an id gets one."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call_to_wire(call) for call in message.tool_calls]
        fields["content"] = message.content or None
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _call_to_wire(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments), ensure_ascii=False)
    return {
        "id": call.id or f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": text},
    }


def messages_from_wire(values: object, param: str = "messages") -> tuple[Message, ...]:
    """The messages of a request.

    Raises:
        WireError: the first fault.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise WireError("must be a list of at least one message", param)
    return tuple(message_from_wire(value, f"{param}[{index}]") for index, value in enumerate(values))


def message_from_wire(value: object, param: str = "message") -> Message:
    """One message of a request or an answer. Arguments of tool calls that aren't a JSON object stay text.

    Raises:
        WireError: the first fault.
    """
    if not isinstance(value, Mapping):
        raise WireError("must be an object with `role` and `content`", param)
    role = value.get("role")
    if role not in ROLES:
        raise WireError(f"must be one of {', '.join(ROLES)}, got {role!r}", f"{param}.role")
    calls = value.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise WireError("must be a list of tool calls", f"{param}.tool_calls")
    if value.get("content") is None and not calls and role != "assistant":
        raise WireError("is missing", f"{param}.content")
    return Message(
        role=role,
        content=_text(value.get("content"), f"{param}.content"),
        reasoning=_optional(value, ("reasoning_content", "reasoning"), param),
        tool_calls=tuple(
            _call_from_wire(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(calls)
        ),
        tool_call_id=_optional(value, ("tool_call_id",), param),
        name=_optional(value, ("name",), param),
    )


def _text(content: object, param: str) -> str:
    """The text of a content: a string, nothing, or a list of parts that are all text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise WireError("must be a string or a list of text parts", param)
    texts = []
    for index, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") != "text":
            raise WireError(
                'only parts such as {"type": "text", "text": "..."} are understood', f"{param}[{index}]"
            )
        texts.append(text)
    return "".join(texts)


def _optional(value: Mapping[str, Any], names: Sequence[str], param: str) -> str | None:
    for name in names:
        found = value.get(name)
        if found is not None and not isinstance(found, str):
            raise WireError("must be a string", f"{param}.{name}")
        if found is not None:
            return found
    return None


def _call_from_wire(value: object, param: str) -> ToolCall:
    function = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(function, Mapping) or not isinstance(name, str):
        raise WireError("must be a function call with a name", param)
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str | Mapping):
        raise WireError("must be the text of a JSON object", f"{param}.function.arguments")
    identity = value.get("id")
    return ToolCall(
        name=name, arguments=_arguments(arguments), id=identity if isinstance(identity, str) else None
    )


def _arguments(arguments: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """A model's arguments, parsed if they are a JSON object; no arguments at all are an empty one."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
