"""Spans by the GenAI conventions of OpenTelemetry: today's, those before 1.37, and the flattened prompts before them.

Source: open-telemetry/semantic-conventions-genai. Content is opt-in there, so most spans have none. It is in attributes
of the span (`gen_ai.input.messages`), in an event with the same attributes, or, before 1.37, in an event for each message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evsys_traces.formats.flat import unflatten
from evsys_traces.items import Event, Item, Judgement, Nothing, Span
from evsys_traces.trace import Call, Feedback, LeftOut, conversation_of, number, read_call

__all__ = ["call_of", "is_span", "items_of_event", "items_of_span"]

_EVALUATION = "gen_ai.evaluation.result"
_DETAILS = "gen_ai.client.inference.operation.details"
_OWN = "evsys.experiment"
_CHAT = {None, "chat", "text_completion", "generate_content", "invoke_model"}
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
}
_ROLES |= {"gen_ai.tool.message": "tool"}
_CONTENT = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
)


def is_span(span: Span) -> bool:
    """Whether a span is of a model or an agent."""
    return any(name.startswith("gen_ai.") for name in span.attributes)


def items_of_span(span: Span, events: Sequence[Event]) -> Iterator[Item]:
    """The call that a span is, or the span itself if its content may be in other documents; and feedback."""
    for event in events:
        if event.name == _EVALUATION:
            yield from items_of_event(event, span.trace_id)
    if not is_span(span):
        yield Nothing(reason="a span that isn't a model's")
    elif _OWN in span.attributes:
        yield Nothing(reason="a rollout of an evsys experiment")
    elif span.attributes.get("gen_ai.operation.name") not in _CHAT:
        yield Nothing(reason=f"a span of {span.attributes.get('gen_ai.operation.name')!s}, not a chat")
    elif _has_content(span, events):
        yield call_of(span, events)
    else:
        yield span


def items_of_event(event: Event, trace_id: str) -> Iterator[Item]:
    """The feedback in an event, or the event if it holds content of its span."""
    found = event.attributes
    if event.name == _EVALUATION:
        ids = (found.get("gen_ai.response.id"), event.span_id, trace_id)
        label, comment = (
            found.get("gen_ai.evaluation.score.label"),
            found.get("gen_ai.evaluation.explanation"),
        )
        yield Judgement(
            ids=tuple(str(each) for each in ids if each)[:1],  # the closest: a trace has several answers
            feedback=Feedback(
                name=str(found.get("gen_ai.evaluation.name") or "evaluation"),
                score=number(found.get("gen_ai.evaluation.score.value")),
                label=None if label is None else str(label),
                comment=None if comment is None else str(comment),
            ),
        )
    elif event.name.startswith("gen_ai."):
        yield event
    else:
        yield Nothing(reason="a log record that isn't a model's")


def call_of(span: Span, events: Sequence[Event]) -> Call:
    """The call of a span, with the content of its attributes and events.

    Raises:
        LeftOut: there is no conversation to keep.
    """
    found = dict(span.attributes)
    for event in events:
        if event.name == _DETAILS:
            found |= {name: event.attributes[name] for name in _CONTENT if name in event.attributes}
    asked, answer, tools, finish = (
        _today(found) or _by_events(events) or _flat_prompts(found) or ([], None, None, None)
    )
    tools = tools or _flat_tools(found)
    reasons = found.get("gen_ai.response.finish_reasons")
    if finish is None and isinstance(reasons, list) and reasons:
        finish = str(reasons[0])
    model = found.get("gen_ai.response.model") or found.get("gen_ai.request.model")
    return read_call(
        asked,
        answer,
        tools,
        error=span.error or (str(found["error.type"]) if found.get("error.type") else None),
        conversation=conversation_of(
            found.get("gen_ai.conversation.id"), found.get("session.id"), span.trace_id
        ),
        time=span.ended,
        model=None if model is None else str(model),
        finish_reason=finish,
        ids=tuple(
            str(each) for each in (found.get("gen_ai.response.id"), span.span_id, span.trace_id) if each
        ),
    )


def _has_content(span: Span, events: Sequence[Event]) -> bool:
    inside = (
        any(name in span.attributes for name in _CONTENT[:2]) or "gen_ai.prompt.0.role" in span.attributes
    )
    return inside or any(
        event.name in _ROLES or event.name in (_DETAILS, "gen_ai.choice") for event in events
    )


type _Content = tuple[list[Any], Any, Any, str | None]


def _today(found: Mapping[str, Any]) -> _Content | None:
    asked, answered, system, tools = (_structure(found, name) for name in _CONTENT)
    if asked is None and answered is None:
        return None
    sent: list[Any] = []
    if system:
        parts = system if isinstance(system, list) else [{"type": "text", "content": system}]
        sent.append(_message({"role": "system", "parts": parts}))
    for item in asked or ():
        sent.extend(_messages(item))
    answers = list(answered or ())
    finish = answers[0].get("finish_reason") if answers and isinstance(answers[0], Mapping) else None
    return sent, _message(answers[0]) if answers else None, _tools(tools), finish


def _structure(found: Mapping[str, Any], name: str) -> Any:
    """A structured attribute, which may be JSON text."""
    value = found.get(name)
    if not isinstance(value, str) or (
        name == "gen_ai.system_instructions" and not value.lstrip().startswith("[")
    ):
        return value
    return _json(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise LeftOut("content is cut off or not JSON") from None


def _messages(item: Any) -> Iterator[dict[str, Any]]:
    """The messages that one of the conventions is: an answer of a tool is a message each."""
    parts = item.get("parts") if isinstance(item, Mapping) else None
    answers = [
        part for part in parts or () if isinstance(part, Mapping) and part.get("type") == "tool_call_response"
    ]
    for part in answers:
        response = part.get(
            "response", part.get("result")
        )  # the schema says `response`, the convention's table `result`
        yield {"role": "tool", "content": _as_text(response), "tool_call_id": part.get("id")}
    if not answers or len(answers) < len(parts or ()):
        yield _message(item)


def _message(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise LeftOut("a message is not an object")
    message: dict[str, Any] = {"role": item.get("role", "assistant"), "content": ""}
    if item.get("name"):
        message["name"] = item["name"]
    if "parts" not in item:
        return {**message, "content": item.get("content", "")}
    for part in item["parts"]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            message["content"] += _as_text(part.get("content"))
        elif kind == "reasoning":
            message["reasoning"] = message.get("reasoning", "") + _as_text(part.get("content"))
        elif kind == "tool_call":
            call = {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("arguments")}
            message.setdefault("tool_calls", []).append(call)
        elif kind != "tool_call_response":
            raise LeftOut("content is more than text")
    return message


def _tools(tools: Any) -> Any:
    """Tool schemas in the shape of chat completions: the conventions have them without the inner object."""
    if not isinstance(tools, list):
        return tools
    return [
        {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        if isinstance(tool, Mapping) and tool.get("type") == "function" and "function" not in tool
        else tool
        for tool in tools
    ]


def _by_events(events: Sequence[Event]) -> _Content | None:
    """The conventions before 1.37: an event for each message, and `gen_ai.choice` for the answer."""
    sent: list[Any] = []
    answer, finish = None, None
    for event in events:
        found = event.attributes
        if event.name in _ROLES:
            role = str(found.get("role") or _ROLES[event.name])
            message = {"role": role, "content": _or_empty(found), **_calls(found)}
            if role == "tool":
                message["tool_call_id"] = found.get("id")
            sent.append(message)
        elif event.name == "gen_ai.choice" and answer is None:
            inner = _inner(found.get("message"))
            answer = {"role": "assistant", "content": _or_empty(inner), **_calls(inner)}
            finish = found.get("finish_reason")
    return (sent, answer, None, None if finish is None else str(finish)) if sent or answer else None


def _inner(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"content": value}
    return value if isinstance(value, Mapping) else {}


def _or_empty(found: Mapping[str, Any]) -> Any:
    return "" if found.get("content") is None else found["content"]


def _calls(found: Mapping[str, Any]) -> dict[str, Any]:
    calls = found.get("tool_calls")
    return {"tool_calls": calls} if calls else {}


def _flat_prompts(found: Mapping[str, Any]) -> _Content | None:
    """`gen_ai.prompt.<i>.role`, as instrumentations wrote before there were conventions for content."""
    tree = unflatten(found)
    genai = tree.get("gen_ai", {})
    prompt, completion = genai.get("prompt"), genai.get("completion")
    if not isinstance(prompt, list):
        return None
    answer = completion[0] if isinstance(completion, list) and completion else None
    finish = answer.get("finish_reason") if isinstance(answer, Mapping) else None
    return [*map(_flat, prompt)], None if answer is None else _flat(answer), None, finish


def _flat_tools(found: Mapping[str, Any]) -> list[Any]:
    """`llm.request.functions.<i>.name`: the conventions had no place for tools before 1.37, instrumentations had."""
    request = unflatten(
        {name: value for name, value in found.items() if name.startswith("llm.request.functions.")}
    )
    functions = request["llm"]["request"]["functions"] if request else []
    tools = [dict(each) for each in functions if isinstance(each, Mapping)]
    for tool in tools:
        if isinstance(tool.get("parameters"), str):
            tool["parameters"] = _json(tool["parameters"])
    return [{"type": "function", "function": tool} for tool in tools]


def _flat(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise LeftOut("a message is not an object")
    calls = item.get("tool_calls")
    message = {"role": item.get("role", "assistant"), "content": _or_empty(item)}
    if isinstance(calls, list) and calls:
        message["tool_calls"] = calls
    if item.get("tool_call_id"):
        message["tool_call_id"] = item["tool_call_id"]
    return message


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
