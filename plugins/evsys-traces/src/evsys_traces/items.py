"""The contents of a document of a log besides whole calls: parts that other documents complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys_traces.trace import Call, Feedback

__all__ = ["Event", "Item", "Judgement", "Nothing", "Span"]


@attrs.frozen(kw_only=True)
class Span:
    """A span of OpenTelemetry: one operation of an application.

    Attributes:
        attributes: by name, as plain values.
        trace_id: of the request that it is part of.
        span_id: its own id.
        ended: in seconds since 1970; None if unknown.
        error: the message of its status, if that is an error.
    """

    attributes: Mapping[str, Any]
    trace_id: str
    span_id: str
    ended: float | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened within a span, on record in the span or as a log record of its own.

    Attributes:
        span_id: the span.
        name: such as `gen_ai.user.message`.
        attributes: by name; the fields of a body are among them.
    """

    span_id: str
    name: str
    attributes: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Judgement:
    """Feedback on a call that is on record elsewhere, found by any of `ids`."""

    ids: tuple[str, ...]
    feedback: Feedback


@attrs.frozen(kw_only=True)
class Nothing:
    """A record that holds no call, with the reason that it is counted under."""

    reason: str


type Item = Call | Span | Event | Judgement | Nothing
