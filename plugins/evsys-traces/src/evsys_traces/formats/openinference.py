"""Spans by the conventions of OpenInference, in OTLP or as one JSON object a span; and the annotations exported with them.

Source: Arize-ai/openinference, `spec/semantic_conventions.md`. Messages are flattened into attributes:
`llm.input_messages.<i>.message.role`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys_traces.formats.flat import unflatten
from evsys_traces.items import Item, Judgement, Nothing, Span
from evsys_traces.trace import Call, Feedback, LeftOut, conversation_of, moment, number, read_call

__all__ = ["is_document", "is_span", "item_of", "items"]

_KIND = "openinference.span.kind"


def is_span(span: Span) -> bool:
    """Whether a span follows these conventions."""
    return _KIND in span.attributes or any(name.startswith("llm.input_messages") for name in span.attributes)


def is_document(document: Mapping[str, Any]) -> bool:
    """Whether a record is a span on its own, or an annotation."""
    return _is_annotation(document) or isinstance(document.get("attributes"), Mapping)


def _is_annotation(document: Mapping[str, Any]) -> bool:
    named = document.get("annotation_name") or document.get("name")
    return bool(document.get("span_id") and named and {"score", "label", "result"} & set(document))


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """The call, or the feedback."""
    if _is_annotation(document):
        found = document["result"] if isinstance(document.get("result"), Mapping) else document
        label, comment = found.get("label"), found.get("explanation")
        yield Judgement(
            ids=(str(document["span_id"]),),
            feedback=Feedback(
                name=str(document.get("annotation_name") or document.get("name")),
                score=number(found.get("score")),
                label=None if label is None else str(label),
                comment=None if comment is None else str(comment),
            ),
        )
        return
    context = document.get("context")
    ids = context if isinstance(context, Mapping) else document
    status = document.get("status_code") or document.get("status")
    code = status.get("status_code") if isinstance(status, Mapping) else status
    yield item_of(
        Span(
            attributes=_flat(document["attributes"]),
            trace_id=str(ids.get("trace_id") or ""),
            span_id=str(ids.get("span_id") or ""),
            ended=moment(document.get("end_time")),
            error=str(document.get("status_message") or "error") if code == "ERROR" else None,
        )
    )


def _flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Attributes by their dotted names: exports have them flat or as a tree."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            for place, each in enumerate(value):
                found |= _flat(each if isinstance(each, Mapping) else {"": each}, f"{before}{name}.{place}.")
        else:
            found[f"{before}{name}"] = value
    return found


def item_of(span: Span) -> Item:
    """The call that a span is.

    Raises:
        LeftOut: it has no conversation to keep.
    """
    kind = span.attributes.get(_KIND, "LLM")
    if kind != "LLM":
        return Nothing(reason=f"a span of kind {kind!s}, not LLM")
    return _call(span)


def _call(span: Span) -> Call:
    tree = unflatten(span.attributes)
    llm = tree["llm"] if isinstance(tree.get("llm"), Mapping) else {}
    asked = [_message(each) for each in _list(llm.get("input_messages"))]
    answers = [_message(each) for each in _list(llm.get("output_messages"))]
    tools = [_tool(each) for each in _list(llm.get("tools"))]
    model = llm.get("model_name")
    finish = llm.get("finish_reason")
    session = tree.get("session")
    return read_call(
        asked,
        answers[0] if answers else None,
        [tool for tool in tools if tool is not None],
        error=span.error,
        conversation=conversation_of(
            session.get("id") if isinstance(session, Mapping) else None, span.trace_id
        ),
        time=span.ended,
        model=None if model is None else str(model),
        finish_reason=None if finish is None else str(finish),
        ids=tuple(each for each in (span.span_id, span.trace_id) if each),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _message(item: Any) -> dict[str, Any]:
    found = item.get("message") if isinstance(item, Mapping) else None
    if not isinstance(found, Mapping):
        raise LeftOut("a message is not an object")
    message: dict[str, Any] = {"role": found.get("role"), "content": found.get("content") or ""}
    for part in _list(found.get("contents")):
        content = part.get("message_content") if isinstance(part, Mapping) else None
        kind = content.get("type") if isinstance(content, Mapping) else None
        if not isinstance(content, Mapping) or kind not in ("text", "reasoning"):
            raise LeftOut("content is more than text")
        key = "content" if kind == "text" else "reasoning"
        message[key] = message.get(key, "") + str(content.get("text") or "")
    calls = [
        each.get("tool_call", {}) for each in _list(found.get("tool_calls")) if isinstance(each, Mapping)
    ]
    if calls:
        message["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if found.get(name):
            message[name] = found[name]
    return message


def _tool(item: Any) -> Any:
    """A tool's schema, which is JSON text."""
    import json

    tool = item.get("tool") if isinstance(item, Mapping) else None
    schema = tool.get("json_schema") if isinstance(tool, Mapping) else None
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError):
        raise LeftOut("content is cut off or not JSON") from None
