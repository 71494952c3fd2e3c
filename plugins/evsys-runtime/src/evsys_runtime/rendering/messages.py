"""Messages as chat templates read them, and the check that a template shows what it was given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evsys.errors import DataError
from evsys.types import Message, ToolCall

__all__ = ["require_answer_shown", "require_prompt_shown", "template_messages"]


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Plain mappings with the keys that templates of all families look for.

    Reasoning appears as `reasoning_content`, `reasoning` and `thinking`: each family reads one of them.
    """
    return [_template_message(message) for message in messages]


def _template_message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields.update(dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.reasoning))
    if message.tool_calls:
        fields["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _template_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
    fields: dict[str, Any] = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    if call.id is not None:
        fields["id"] = call.id
    return fields


def require_prompt_shown(
    text: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], template: str
) -> None:
    """Refuse a template that left out a tool, or a system, user or tool message, of the prompt it rendered.

    Raises:
        DataError: what is missing, and which template dropped it.
    """
    for tool in tools:
        name = _tool_name(tool)
        if name not in text:
            raise DataError(
                f"the chat template does not show the tool {name!r} to the model",
                source=template,
                hint="use a model whose template supports tools, or describe the tools in the system message",
            )
    for message in messages:
        if message.role != "assistant" and not _shows(message.content, text):
            raise DataError(
                f"the chat template leaves out a message of role {message.role!r}: {_excerpt(message.content)}",
                source=template,
                hint="use a model whose template supports this role, or move the text into a user message",
            )


def require_answer_shown(text: str, message: Message, template: str) -> None:
    """Refuse a template that left out the reasoning, a tool call or the content of an assistant turn to be learned.

    Raises:
        DataError: what is missing, and which template dropped it.
    """
    missing = None
    if message.reasoning and not _shows(message.reasoning, text):
        missing = f"its reasoning: {_excerpt(message.reasoning)}"
    elif not _shows(message.content, text):
        missing = f"its content: {_excerpt(message.content)}"
    else:
        absent = [call.name for call in message.tool_calls if not _shows(call.name, text)]
        if absent:
            missing = f"its call of the tool {absent[0]!r}"
    if missing is not None:
        raise DataError(
            f"the chat template leaves out a part of an assistant turn, {missing}",
            source=template,
            hint="use a model whose template has a place for it, or remove it from the data; thoughts belong into "
            "`reasoning`, not into the content",
        )


def _shows(part: str, text: str) -> bool:
    """True when the text holds the part, trimmed (most templates trim) or as a JSON string (some quote tool output)."""
    part = part.strip()
    return part in text or json.dumps(part, ensure_ascii=False)[1:-1] in text


def _tool_name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise DataError(
            f"a tool schema has no name: {_excerpt(json.dumps(tool, ensure_ascii=False, default=str))}",
            hint='write {"type": "function", "function": {"name": ..., "parameters": ...}}',
        )
    return name


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
