"""The rollouts of a run as spans by the GenAI conventions, in OTLP/JSON: what Phoenix, Langfuse and others open.

Source: open-telemetry/semantic-conventions-genai. Each rollout is a trace: a span of the agent, and below it one of each
call of the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evsys.types import Message, Rollout, Score
from evsys_record import RecordedRollout, Run
from evsys_traces.trace import moment

__all__ = ["span_documents"]

_INTERNAL, _CLIENT = 1, 3
_FAILED = 2


def span_documents(run: Run, experiment: str, phase: str) -> Iterator[dict[str, Any]]:
    """A document of OTLP/JSON for each rollout, one line each in a file.

    Args:
        run: a run on record.
        experiment: its experiment's id.
        phase: `training`, `validation` or `test`.
    """
    model = str(run.facts.get("model") or "")
    resource = {"attributes": _attributes({"service.name": "evsys"})}
    scope = {"name": "evsys"}
    for number, recorded in enumerate(run.rollouts(phase)):
        about = {
            "evsys.experiment": experiment,
            "evsys.run": run.id,
            "evsys.phase": phase,
            "evsys.step": recorded.step,
            "evsys.task": recorded.rollout.task_id,
            "evsys.sample": recorded.rollout.sample_index,
        }
        if recorded.benchmark is not None:
            about["evsys.benchmark"] = recorded.benchmark
        spans = list(_spans(recorded, about, model, f"{experiment}/{run.id}/{phase}/{number}"))
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}


def _spans(
    recorded: RecordedRollout, about: Mapping[str, Any], model: str, identity: str
) -> Iterator[dict[str, Any]]:
    rollout = recorded.rollout
    trace_id, root_id = _hex(identity, 16), _hex(f"{identity}/agent", 8)
    nanoseconds = str(int((moment(recorded.time) or 0) * 1e9))
    common = {"traceId": trace_id, "startTimeUnixNano": nanoseconds, "endTimeUnixNano": nanoseconds}
    conversation = {"gen_ai.conversation.id": trace_id, "gen_ai.provider.name": "evsys", **about}
    events = [_evaluation_event(rollout.score)] if isinstance(rollout.score, Score) else []
    yield {
        **common,
        "spanId": root_id,
        "name": f"invoke_agent {rollout.task_id}",
        "kind": _INTERNAL,
        "attributes": _attributes({**conversation, "gen_ai.operation.name": "invoke_agent"}),
        "events": [{**each, "timeUnixNano": nanoseconds} for each in events],
        "status": _status(rollout),
    }
    for place, (sent, turn) in enumerate(_calls(rollout)):
        facts = {
            **conversation,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.response.finish_reasons": [turn.finish_reason],
            "gen_ai.usage.input_tokens": len(turn.prompt_tokens or ()),
            "gen_ai.usage.output_tokens": len(turn.tokens or ()),
            "gen_ai.input.messages": [_message(each) for each in sent],
            "gen_ai.output.messages": [{**_message(turn.message), "finish_reason": turn.finish_reason}],
        }
        yield {
            **common,
            "spanId": _hex(f"{identity}/{place}", 8),
            "parentSpanId": root_id,
            "name": f"chat {model}".strip(),
            "kind": _CLIENT,
            "attributes": _attributes(facts),
        }


def _calls(rollout: Rollout) -> Iterator[tuple[Sequence[Message], Any]]:
    """Each turn with the messages before its answer, as far as the conversation still has that answer."""
    start = 0
    for turn in rollout.turns:
        place = next(
            (at for at in range(start, len(rollout.messages)) if rollout.messages[at] == turn.message), None
        )
        yield rollout.messages[: start if place is None else place], turn
        start = start if place is None else place + 1


def _evaluation_event(score: Score) -> dict[str, Any]:
    found = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": float(score.value)}
    return {"name": "gen_ai.evaluation.result", "attributes": _attributes(found)}


def _status(rollout: Rollout) -> dict[str, Any]:
    return {} if rollout.error is None else {"code": _FAILED, "message": rollout.error}


def _message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "content": message.reasoning})
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": message.content})
    elif message.content:
        parts.append({"type": "text", "content": message.content})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _any_value(value)} for name, value in values.items()]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list() if all(isinstance(each, str) for each in value):
            return {"arrayValue": {"values": [_any_value(each) for each in value]}}
        case _:  # structures go as JSON text, which every backend takes
            return {"stringValue": json.dumps(value, ensure_ascii=False)}


def _hex(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
