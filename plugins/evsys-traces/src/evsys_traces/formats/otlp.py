"""OTLP/JSON: spans and log records of OpenTelemetry, with the GenAI conventions or with OpenInference's.

Read as plain JSON: ids are hexadecimal there, which the JSON mapping of protobuf would take for base64.
Source: the OTLP specification, "JSON Protobuf Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys_traces.formats import genai, openinference
from evsys_traces.items import Event, Item, Span

__all__ = ["is_document", "items", "plain"]

_ERROR = {2, "2", "STATUS_CODE_ERROR", "ERROR"}


def is_document(document: Mapping[str, Any]) -> bool:
    """Whether a record is a batch of spans or of log records."""
    return any(isinstance(document.get(name), list) for name in ("resourceSpans", "resourceLogs"))


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """The calls, the spans without content, and the events that may complete them."""
    for span in _leaves(document, "resourceSpans", "scopeSpans", "spans"):
        yield from _of_span(span)
    for record in _leaves(document, "resourceLogs", "scopeLogs", "logRecords"):
        event = _event(record, str(record.get("spanId") or ""))
        yield from genai.items_of_event(event, str(record.get("traceId") or ""))


def _leaves(document: Mapping[str, Any], *levels: str) -> Iterator[Mapping[str, Any]]:
    for resource in _objects(document.get(levels[0])):
        for scope in _objects(resource.get(levels[1])):
            yield from _objects(scope.get(levels[2]))


def _of_span(raw: Mapping[str, Any]) -> Iterator[Item]:
    status = raw.get("status")
    failed = isinstance(status, Mapping) and status.get("code") in _ERROR
    nanoseconds = str(raw.get("endTimeUnixNano") or raw.get("startTimeUnixNano") or "")
    span = Span(
        attributes=_attributes(raw.get("attributes")),
        trace_id=str(raw.get("traceId") or ""),
        span_id=str(raw.get("spanId") or ""),
        ended=int(nanoseconds) / 1e9 if nanoseconds.isdecimal() else None,
        error=str(status.get("message") or "error") if failed and isinstance(status, Mapping) else None,
    )
    events = [_event(each, span.span_id) for each in _objects(raw.get("events"))]
    if openinference.is_span(span):
        yield openinference.item_of(span)
    else:
        yield from genai.items_of_span(span, events)


def _event(raw: Mapping[str, Any], span_id: str) -> Event:
    attributes = _attributes(raw.get("attributes"))
    body = plain(raw["body"]) if isinstance(raw.get("body"), Mapping) else None
    if isinstance(body, Mapping):
        attributes = {**body, **attributes}
    name = raw.get("eventName") or raw.get("name") or attributes.get("event.name") or ""
    return Event(span_id=span_id, name=str(name), attributes=attributes)


def _attributes(raw: Any) -> dict[str, Any]:
    return {str(each.get("key")): plain(each.get("value")) for each in _objects(raw)}


def _objects(raw: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in (raw if isinstance(raw, list) else ()) if isinstance(each, Mapping))


def plain(value: Any) -> Any:
    """An `AnyValue` as a plain one; 64-bit integers are texts on the wire."""
    if not isinstance(value, Mapping):
        return None
    for name, content in value.items():
        match name:
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return content
            case "intValue":
                return int(content) if str(content).lstrip("-").isdigit() else None
            case "arrayValue":
                return [plain(each) for each in _objects(content.get("values"))] if content else []
            case "kvlistValue":
                return _attributes(content.get("values")) if content else {}
    return None
