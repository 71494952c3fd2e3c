"""Chat logs in the shapes of OpenAI's APIs, and the request log of `evsys serve`.

A record is a conversation (`messages`), a request with its response (`request`, `response`; what `evsys serve` logs), or a
call of the Responses API (`input`, `output`). Fields of an application's own may lie next to these: an id of the
conversation, a time, feedback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys_traces.items import Item, Judgement
from evsys_traces.trace import Call, Feedback, LeftOut, conversation_of, moment, number, read_call

__all__ = ["feedback_of", "is_document", "items"]

_CONVERSATION = ("conversation_id", "session_id", "thread_id", "chat_id")
_TIMES = ("time", "timestamp", "created", "created_at", "end_time")
_FEEDBACK = ("feedback", "scores", "rating", "score", "reward")
_GOOD = {"up": 1.0, "thumbs_up": 1.0, "positive": 1.0, "good": 1.0}
_BAD = {"down": 0.0, "thumbs_down": 0.0, "negative": 0.0, "bad": 0.0}


def is_document(document: Mapping[str, Any]) -> bool:
    """Whether a record looks like one of these."""
    if isinstance(document.get("messages"), list) or _is_pair(document):
        return True
    return ("input" in document and isinstance(document.get("output"), list)) or _is_judgement(document)


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """The call on record, or feedback on one."""
    if _is_judgement(document):
        ids = tuple(str(document[name]) for name in ("response_id", *_CONVERSATION) if document.get(name))
        for feedback in feedback_of(document.get("feedback")):
            yield Judgement(ids=ids, feedback=feedback)
        return
    yield _pair(document) if _is_pair(document) else _call(document, document, document)


def _is_pair(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("request"), Mapping) and ("response" in document or "error" in document)


def _is_judgement(document: Mapping[str, Any]) -> bool:
    named = any(isinstance(document.get(name), str) for name in ("response_id", *_CONVERSATION))
    return named and "feedback" in document and not {"messages", "request", "input"} & set(document)


def _pair(document: Mapping[str, Any]) -> Call:
    response = document.get("response")
    return _call(document["request"], response if isinstance(response, Mapping) else {}, document)


def _call(request: Mapping[str, Any], response: Mapping[str, Any], own: Mapping[str, Any]) -> Call:
    error = _error(response) or _error(own)
    if "messages" in request:
        asked, answer, finish = request["messages"], *_choice(response)
    else:
        asked, answer, finish = _responses_input(request), None, None
        asked += _responses_items(response.get("output"))
    if not isinstance(asked, list):
        raise LeftOut("'messages' is not a list of messages")
    stored = own.get("metadata"), request.get("metadata")
    own_facts = (own, *(each for each in stored if isinstance(each, Mapping)))
    return read_call(
        asked,
        answer,
        request.get("tools") or own.get("tools"),
        error=error,
        conversation=conversation_of(*(facts.get(name) for facts in own_facts for name in _CONVERSATION)),
        time=next(
            (
                found
                for facts in (own, response)
                for name in _TIMES
                if (found := moment(facts.get(name))) is not None
            ),
            None,
        ),
        model=next((str(each["model"]) for each in (response, request, own) if each.get("model")), None),
        finish_reason=finish or own.get("finish_reason"),
        ids=tuple(dict.fromkeys(str(each["id"]) for each in (response, own) if each.get("id"))),
        feedback=tuple(
            found for facts in own_facts for name in _FEEDBACK for found in feedback_of(facts.get(name), name)
        ),
    )


def _error(place: Mapping[str, Any]) -> str | None:
    error = place.get("error")
    if not error:
        return None
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("type") or error)
    return str(error)


def _choice(response: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The answer and the reason of its end: of the first choice, since one alone goes on with the conversation."""
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        reason = choices[0].get("finish_reason")
        return choices[0].get("message"), reason if isinstance(reason, str) else None
    return None, None


def _responses_input(request: Mapping[str, Any]) -> list[Any]:
    instructions = request.get("instructions")
    asked: list[Any] = [{"role": "system", "content": instructions}] if instructions else []
    given = request.get("input")
    return asked + (
        [{"role": "user", "content": given}] if isinstance(given, str) else _responses_items(given)
    )


def _responses_items(given: Any) -> list[dict[str, Any]]:
    """Messages of the items of the Responses API; what one answer consists of becomes one message."""
    found: list[dict[str, Any]] = []
    for item in given if isinstance(given, list) else ():
        if not isinstance(item, Mapping):
            raise LeftOut("an item is not an object")
        kind = item.get("type", "message")
        if kind == "message":
            text = _text(item.get("content"))
            if item.get("role") == "assistant":
                message = _answer(found)
                message["content"] = message["content"] + text
            else:
                found.append({"role": item.get("role"), "content": text})
        elif kind == "function_call":
            call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
            _answer(found).setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else _text(output)
            found.append({"role": "tool", "content": text, "tool_call_id": item.get("call_id")})
        elif kind == "reasoning":
            text = _text(item.get("summary")) or _text(item.get("content"))
            if text:
                _answer(found)["reasoning"] = text
        else:
            raise LeftOut(f"an item of type {kind!r}")
    return found


def _answer(found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise LeftOut("content is more than text")
        texts.append(text)
    return "".join(texts)


def feedback_of(value: Any, name: str = "feedback") -> Iterator[Feedback]:
    """The judgements in a field: a number, a truth value, a word such as `up`, an object, or a list of these."""
    if value is None or value == "":
        return
    if isinstance(value, list):
        for each in value:
            yield from feedback_of(each, name)
    elif isinstance(value, Mapping):
        score = next(
            (value[key] for key in ("score", "value", "rating", "thumbs") if value.get(key) is not None), None
        )
        label, comment = value.get("label"), value.get("comment") or value.get("explanation")
        for found in feedback_of(score if score is not None else label, str(value.get("name") or name)):
            yield Feedback(
                name=found.name,
                score=found.score,
                label=str(label) if label is not None else found.label,
                comment=str(comment) if comment else None,
            )
    elif isinstance(value, str) and number(value) is None:
        word = value.strip().lower().replace(" ", "_")
        yield Feedback(name=name, score={**_GOOD, **_BAD}.get(word), label=value)
    elif (score := number(value)) is not None:
        yield Feedback(name=name, score=score)
