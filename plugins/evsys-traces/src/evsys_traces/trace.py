"""A call of a model as a trace has it, in the one shape that every format is read to."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from evsys.types import ChatMessagesRow, Message
from evsys_runtime import RowProblem, parse_row

__all__ = ["Call", "Feedback", "LeftOut", "conversation_of", "message_tree", "moment", "number", "read_call"]


class LeftOut(ValueError):  # noqa: N818 - counted by its reason, never reported alone
    """A record without a conversation to keep; the text is the reason that it is counted under."""


@attrs.frozen(kw_only=True)
class Feedback:
    """A judgement of an answer by a user, a reviewer or an evaluation.

    Attributes:
        name: what was judged, such as `thumbs`.
        score: the number; None if there is only a label.
        label: the category; None if there is only a number.
        comment: the reason that was given.
    """

    name: str
    score: float | None = None
    label: str | None = None
    comment: str | None = None

    def tree(self) -> dict[str, Any]:
        """The values that are set, by name."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}


@attrs.frozen(kw_only=True)
class Call:
    """One call of a model.

    Attributes:
        messages: what the model was sent and, unless the call failed, its answer as the last message.
        tools: schemas of the tools it was offered.
        conversation: the application's id of the conversation, or of the trace; None if the log has neither.
        time: when the answer was complete, in seconds since 1970; None if unknown.
        model: who answered.
        finish_reason: why the answer ended, such as `stop`.
        error: what went wrong, if the call failed.
        ids: what feedback refers to the call by: ids of its response, span, observation or trace.
        feedback: what the log has in the same place.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    conversation: str | None = None
    time: float | None = None
    model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    ids: tuple[str, ...] = ()
    feedback: tuple[Feedback, ...] = ()

    @property
    def answers(self) -> int:
        """Messages of the assistant."""
        return sum(message.role == "assistant" for message in self.messages)

    def row(self) -> dict[str, Any]:
        """The row, without the feedback that stands elsewhere in the log."""
        facts = {
            "conversation_id": self.conversation,
            "time": None if self.time is None else _iso(self.time),
            "model": self.model,
            "finish_reason": self.finish_reason,
            "error": self.error,
        }
        row: dict[str, Any] = {"messages": [message_tree(message) for message in self.messages]}
        if self.tools:
            row["tools"] = [dict(tool) for tool in self.tools]
        return {**row, "metadata": {name: value for name, value in facts.items() if value is not None}}

    def prefixes(self) -> Iterator[bytes]:
        """A hash of the conversation up to each answer of the assistant and up to its end."""
        digest = hashlib.blake2b(digest_size=16)
        for place, message in enumerate(self.messages):
            digest.update(json.dumps(message_tree(message), sort_keys=True).encode() + b"\n")
            if message.role == "assistant" or place == len(self.messages) - 1:
                yield digest.copy().digest()

    def opening(self) -> str:
        """A hash of the first message of the user, by which threads of one conversation are separated."""
        first = next((message for message in self.messages if message.role == "user"), self.messages[0])
        return hashlib.blake2b(first.content.encode(), digest_size=16).hexdigest()


def read_call(
    asked: Sequence[Any], answer: Any, tools: Any, *, error: str | None = None, **facts: Any
) -> Call:
    """A call from messages in any spelling that rows of training data may have.

    Args:
        asked: what the model was sent.
        answer: its message; None if the call failed, or if the answer is the last of `asked`.
        tools: schemas, as a list or as JSON text.
        error: what went wrong.
        facts: the other attributes of `Call`.

    Raises:
        LeftOut: there is no conversation to keep, with the reason.
    """
    sent = list(asked) if answer is None else [*asked, answer]
    if not sent:
        raise LeftOut("without content: capturing it was off")
    try:
        row = parse_row({"messages": [_with_role_of_today(item) for item in sent], "tools": tools}, "chat", 0)
    except RowProblem as exc:
        raise LeftOut(exc.kind) from exc
    assert isinstance(row, ChatMessagesRow)
    if not any(message.role == "user" for message in row.messages):
        raise LeftOut("without a message of a user")
    if error is None and row.messages[-1].role != "assistant":
        raise LeftOut("without an answer")
    return Call(messages=row.messages, tools=row.tools, error=error, **facts)


def _with_role_of_today(item: Any) -> Any:
    """The message under today's names: `function` was the role of a tool's answer."""
    if isinstance(item, Mapping) and item.get("role") == "function":
        return {**item, "role": "tool"}
    return item


def message_tree(message: Message) -> dict[str, Any]:
    """A message as the rows have it: only what is set, arguments of tools as an object."""
    tree: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        tree["reasoning"] = message.reasoning
    if message.tool_calls:
        tree["tool_calls"] = [
            {name: value for name, value in attrs.asdict(call, recurse=False).items() if value is not None}
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "name"):
        if getattr(message, name) is not None:
            tree[name] = getattr(message, name)
    return tree


def conversation_of(*places: Any) -> str | None:
    """The first of several places that holds an id: a text that isn't empty, or a number."""
    for value in places:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def moment(value: Any) -> float | None:
    """Seconds since 1970 from ISO 8601 text (UTC if it names no zone) or from a number of seconds or milliseconds."""
    seconds = number(value)
    if seconds is not None:
        return seconds / 1000 if seconds > 1e11 else seconds  # 1e11 seconds is the year 5138
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None


def number(value: Any) -> float | None:
    """A finite number, also as text; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float | str):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            return None
        return found if math.isfinite(found) else None
    return None


def _iso(seconds: float) -> str:
    try:
        found = datetime.fromtimestamp(round(seconds, 3), UTC)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.3f}"
    return found.isoformat(timespec="milliseconds" if found.microsecond else "seconds").replace("+00:00", "Z")
