"""Messages of a row, in the spellings that data come in, to `Message` values; built a few times faster than by their class.

`Message` and `ChatMessagesRow` are frozen, and a frozen class pays for every field it sets. The twins here have the
same slots, are filled like any object, and then become the real thing by taking its class. Python refuses that when
the slots differ, so a field added to the real class can't go unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from evsys.types import ChatMessagesRow, Message, Role, ToolCall
from evsys_runtime.data.answers import THINK, split_reasoning
from evsys_runtime.data.json_rows import is_row, row_type_name

__all__ = ["RowProblem", "chat_row", "conversation", "message", "messages", "tools"]

_ROLES: dict[Any, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "developer": "developer",
}
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")
_UNSUPPORTED_KEYS = ("function_call", "audio", "images", "image")


class RowProblem(ValueError):  # noqa: N818 - becomes part of a DataError, never reported alone
    """Why a row can't become its typed shape. `kind` groups such rows in counts."""

    def __init__(self, kind: str, message: str | None = None) -> None:
        super().__init__(message or kind)
        self.kind = kind


class _MessageTwin:
    __slots__ = (
        "__weakref__",
        "content",
        "name",
        "reasoning",
        "role",
        "tool_call_id",
        "tool_calls",
        "weight",
    )

    def __init__(self, role: Role, content: str) -> None:
        self.role = role
        self.content = content
        self.reasoning: str | None = None
        self.tool_calls: tuple[ToolCall, ...] = ()
        self.tool_call_id: str | None = None
        self.name: str | None = None
        self.weight: float | None = None


class _ChatTwin:
    __slots__ = ("__weakref__", "messages", "metadata", "rejected", "row_id", "tools")

    def __init__(self, messages: tuple[Message, ...], metadata: Mapping[str, Any], row_id: str) -> None:
        self.messages = messages
        self.rejected: tuple[Message, ...] | None = None
        self.tools: tuple[Mapping[str, Any], ...] = ()
        self.metadata = metadata
        self.row_id = row_id


def chat_row(
    messages: tuple[Message, ...],
    metadata: Mapping[str, Any],
    row_id: str,
    tools: tuple[Mapping[str, Any], ...] = (),
    rejected: tuple[Message, ...] | None = None,
) -> ChatMessagesRow:
    """A `ChatMessagesRow` of checked values."""
    twin = _ChatTwin(messages, metadata, row_id)
    if tools:
        twin.tools = tools
    if rejected is not None:
        twin.rejected = rejected
    twin.__class__ = ChatMessagesRow  # type: ignore[assignment] # same slots, see above
    return twin  # type: ignore[return-value] # its class has just changed


def messages(value: Any, column: str) -> tuple[Message, ...]:
    """The messages of a column that holds a list of them.

    Raises:
        RowProblem: names the column and the place in it.
    """
    if type(value) is not list and not (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
        raise RowProblem(
            f"{column!r} is not a list of messages",
            f"{column!r} is {row_type_name(value)}, not a list of messages",
        )
    if not value:
        raise RowProblem(f"{column!r} is empty")
    found: list[Any] = []
    for item in value:
        if type(item) is dict and len(item) == 2:  # what nearly all messages are: a role and a text
            try:
                role, content = _ROLES[item["role"]], item["content"]
            except (KeyError, TypeError):
                role, content = None, None
            if role is not None and type(content) is str and (role != "assistant" or THINK[1] not in content):
                twin = _MessageTwin(role, content)
                twin.__class__ = Message  # type: ignore[assignment] # same slots, see above
                found.append(twin)
                continue
        found.append(message(item, column, len(found)))
    return tuple(found)


def conversation(value: Any, column: str, role: Role) -> tuple[Message, ...]:
    """Messages of a column that holds either a text, said by `role`, or a list of messages."""
    if isinstance(value, str):
        return (message({"role": role, "content": value}, column, 0),)
    return messages(value, column)


def message(item: Any, column: str, index: int) -> Message:
    """One message in any accepted spelling.

    Content may be a text, null alongside tool calls, or a list of text parts. Reasoning has a key of its own or is
    in think tags before the text, and becomes a field. Keys that carry nothing a model sees are ignored.

    Raises:
        RowProblem: names the column, the index and the key.
    """
    place = f"{column}[{index}]"
    if not is_row(item):
        raise RowProblem(
            "a message is not an object",
            f"{place} is {row_type_name(item)}, not an object with role and content",
        )
    role = item.get("role")
    if type(role) is not str or role not in _ROLES:
        known = ", ".join(_ROLES)
        what = f"{place}.role is {role!r}" if "role" in item else f"{place} has no `role`"
        raise RowProblem("a message has no known role", f"{what}; roles are {known}")
    for key in _UNSUPPORTED_KEYS:
        if item.get(key):
            raise RowProblem(
                f"a message has {key!r}", f"{place}.{key}: not supported, only text and tool_calls are"
            )
    calls = _tool_calls(item.get("tool_calls"), place)
    content = _content(item, place, optional=bool(calls))
    reasoning = next((item[key] for key in _REASONING_KEYS if item.get(key)), None)
    if reasoning is not None and not isinstance(reasoning, str):
        raise RowProblem(
            "reasoning is not a string", f"{place}: reasoning is {row_type_name(reasoning)}, not a string"
        )
    if role == "assistant" and reasoning is None:
        reasoning, content = _split_reasoning(content)
    return Message(
        role=_ROLES[role],
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        tool_call_id=_optional_text(item, "tool_call_id", place),
        name=_optional_text(item, "name", place),
        weight=_weight(item.get("weight"), place),
    )


def tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Tool schemas: a list of objects, or the same as JSON text (tables without nested columns store it so)."""
    if not value:
        return ()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise RowProblem("'tools' is not a list", f"'tools' is a string that is not JSON: {exc}") from exc
    if not isinstance(value, list | tuple):
        raise RowProblem(
            "'tools' is not a list", f"'tools' is {row_type_name(value)}, not a list of tool schemas"
        )
    for index, tool in enumerate(value):
        if not is_row(tool):
            raise RowProblem(
                "a tool is not an object", f"tools[{index}] is {row_type_name(tool)}, not a tool schema"
            )
    return tuple(value)


def _content(item: Mapping[str, Any], place: str, *, optional: bool) -> str:
    content = item.get("content")
    if type(content) is str:
        return content
    if content is None:
        if optional:
            return ""
        raise RowProblem("a message has no content", f"{place} has no `content`")
    if isinstance(content, list | tuple):
        return "".join(_text_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    raise RowProblem("content is not a string", f"{place}.content is {row_type_name(content)}, not a string")


def _text_part(part: Any, place: str) -> str:
    if isinstance(part, str):
        return part
    if is_row(part) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return cast("str", part["text"])
    kind = part.get("type") if is_row(part) else row_type_name(part)
    raise RowProblem(
        "content is more than text", f"{place} is {kind!r}; only parts of type 'text' are supported"
    )


def _split_reasoning(content: str) -> tuple[str | None, str]:
    """As an answer is read, except that reasoning without an end stays content: it is the target of a row."""
    return split_reasoning(content) if THINK[1] in content else (None, content)


def _tool_calls(value: Any, place: str) -> tuple[ToolCall, ...]:
    if not value:
        return ()
    if not isinstance(value, list | tuple):
        raise RowProblem(
            "'tool_calls' is not a list", f"{place}.tool_calls is {row_type_name(value)}, not a list"
        )
    return tuple(_tool_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(value))


def _tool_call(call: Any, place: str) -> ToolCall:
    if not is_row(call):
        raise RowProblem("a tool call is not an object", f"{place} is {row_type_name(call)}, not an object")
    inner = call.get("function") if is_row(call.get("function")) else call
    name, arguments = inner.get("name"), inner.get("arguments")
    if not isinstance(name, str) or not name:
        raise RowProblem("a tool call has no name", f"{place} has no `name`")
    if isinstance(arguments, str):
        arguments = _parsed_arguments(arguments)
    elif arguments is None:
        arguments = {}
    elif not is_row(arguments):
        raise RowProblem(
            "tool arguments are not an object", f"{place}.arguments is {row_type_name(arguments)}"
        )
    return ToolCall(name=name, arguments=arguments, id=_optional_text(call, "id", place))


def _parsed_arguments(text: str) -> Mapping[str, Any] | str:
    """The model's text, parsed if it is a JSON object and unchanged otherwise."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


def _optional_text(item: Mapping[str, Any], key: str, place: str) -> str | None:
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value
    raise RowProblem(f"{key!r} is not a string", f"{place}.{key} is {row_type_name(value)}, not a string")


def _weight(value: Any, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise RowProblem(
            "'weight' is not a weight", f"{place}.weight is {value!r}, not a number of at least 0"
        )
    return float(value)
