"""Exports of Langfuse: observations, of which generations are calls of models, and scores.

Source: langfuse-docs, "Blob storage export fields". `input` and `output` are texts, JSON or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evsys_traces.formats.openai import feedback_of
from evsys_traces.items import Item, Judgement, Nothing
from evsys_traces.trace import Call, LeftOut, conversation_of, moment, read_call

__all__ = ["is_document", "items"]

_TYPES = {
    "GENERATION",
    "SPAN",
    "EVENT",
    "TOOL",
    "AGENT",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
}


def is_document(document: Mapping[str, Any]) -> bool:
    """Whether a record is an observation or a score."""
    return _is_score(document) or (bool(_field(document, "trace_id")) and document.get("type") in _TYPES)


def _is_score(document: Mapping[str, Any]) -> bool:
    values = {"value", "string_value", "stringValue"} & set(document)
    return bool(
        values and document.get("name") and (_field(document, "trace_id") or _field(document, "session_id"))
    )


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """The call, the feedback, or nothing that a model said."""
    if _is_score(document):
        given = (
            document.get("value") if document.get("value") is not None else _field(document, "string_value")
        )
        target = next(
            filter(None, (_field(document, name) for name in ("observation_id", "trace_id", "session_id"))),
            "",
        )
        label = _field(document, "string_value")
        value = {"score": given, "label": label, "comment": document.get("comment")}
        for feedback in feedback_of(value, str(document["name"])):
            yield Judgement(ids=(str(target),), feedback=feedback)
    elif document["type"] == "GENERATION":
        yield _call(document)
    else:
        yield Nothing(reason=f"an observation of type {document['type']}, not GENERATION")


def _call(document: Mapping[str, Any]) -> Call:
    asked, tools = _sent_messages(_value(document.get("input")))
    answer = _answer(_value(document.get("output")), document.get("tool_calls") or document.get("toolCalls"))
    failed = str(document.get("level") or "").upper() == "ERROR"
    message = _field(document, "status_message")
    model = _field(document, "provided_model_name") or document.get("model")
    trace = _field(document, "trace_id")
    finish = document.get("finish_reason")
    return read_call(
        asked,
        answer,
        tools or _value(_field(document, "tool_definitions")),
        error=str(message or "error") if failed else None,
        conversation=conversation_of(_field(document, "session_id"), trace),
        time=moment(_field(document, "end_time") or _field(document, "start_time")),
        model=None if not model else str(model),
        finish_reason=None if not finish else str(finish),
        ids=tuple(str(each) for each in (document.get("id"), trace) if each),
    )


def _field(document: Mapping[str, Any], name: str) -> Any:
    """A field under its name in exports or, in camel case, in the API."""
    first, *rest = name.split("_")
    return document.get(name) or document.get(first + "".join(map(str.capitalize, rest)))


def _value(field: Any) -> Any:
    """A field that is JSON text, or text as it is."""
    if not isinstance(field, str):
        return field
    if field[:1] in '[{"' and field:
        try:
            return json.loads(field)
        except (ValueError, RecursionError):
            if field[0] != '"':
                raise LeftOut("content is cut off or not JSON") from None
    return field


def _sent_messages(given: Any) -> tuple[list[Any], Any]:
    if isinstance(given, Mapping):
        messages = given.get("messages")
        if isinstance(messages, list):
            return messages, given.get("tools")
        return [given], None
    if isinstance(given, list):
        return given, None
    return ([{"role": "user", "content": given}] if given else []), None


def _answer(given: Any, calls: Any) -> Any:
    if given is None and not calls:
        return None
    if isinstance(given, list):
        given = given[0] if given else None
    if isinstance(given, Mapping) and isinstance(given.get("choices"), list) and given["choices"]:
        given = given["choices"][0].get("message")
    message = (
        dict(given) if isinstance(given, Mapping) and ("content" in given or "tool_calls" in given) else None
    )
    if message is None:
        content = given if given is None or isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        message = {"content": content or ""}
    message.setdefault("role", "assistant")
    if calls and not message.get("tool_calls"):
        message["tool_calls"] = [_value(call) for call in calls]
    return message
