"""Rows: what data becomes once, after the last transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

__all__ = [
    "ChatMessagesRow",
    "HarborTask",
    "Message",
    "PromptExample",
    "Role",
    "StoredVersion",
    "ToolCall",
    "VerifierSpec",
]

Role = Literal["system", "user", "assistant", "tool", "developer"]


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call of a tool by the model; `arguments` is what the model wrote, parsed where it was JSON."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None


@attrs.frozen(kw_only=True)
class Message:
    """One message of a conversation.

    `reasoning` is a field of its own: templates place it, and text never carries think tags.
    `weight` scales the loss on an assistant message (None: the algorithm decides).
    """

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    weight: float | None = None


@attrs.frozen(kw_only=True)
class ChatMessagesRow:
    """A conversation to learn from; with `rejected` it is a preference pair (`messages` is chosen)."""

    messages: tuple[Message, ...]
    rejected: tuple[Message, ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    row_id: str = ""


@attrs.frozen(kw_only=True)
class PromptExample:
    """A prompt that a student answers itself; `demonstration` is what a teacher may see alongside it."""

    prompt: tuple[Message, ...]
    demonstration: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    row_id: str = ""


@attrs.frozen(kw_only=True)
class VerifierSpec:
    """Which verifier judges a task, with what it expects."""

    name: str
    expected: Any = None
    params: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class HarborTask:
    """An instruction and its verifier: a benchmark's task and an RL prompt have this one shape.

    `path` is the folder of a native Harbor task, which brings its own environment and tests.
    """

    task_id: str
    instruction: str | tuple[Message, ...]
    verifier: VerifierSpec | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    path: str | None = None


@attrs.frozen(kw_only=True)
class StoredVersion:
    """A version that a data store has: the rows behind its `id` never change.

    `content_hash` is `sha256:...` of its rows as JSON lines. `split` is `test` where reading rows counts as seeing the test, and then
    `reads` counts how often they were read so far; None if unknown.
    """

    id: str
    kind: Literal["datasets", "benchmarks"]
    name: str
    content_hash: str
    split: Literal["val", "test"] | None = None
    reads: int | None = None
