"""One conversation with a tool call, as each format writes it."""

import json

ROW = {
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Weather in Köln?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "weather", "arguments": {"city": "Köln"}, "id": "call-1"}],
        },
        {"role": "tool", "content": '{"sky": "rain"}', "tool_call_id": "call-1"},
        {"role": "assistant", "content": "Rain."},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    "metadata": {
        "conversation_id": "c-7",
        "time": "2026-11-30T10:00:00.250Z",
        "model": "tiny-1",
        "finish_reason": "stop",
        "feedback": [{"name": "thumbs", "score": 0.0, "comment": "it was sunny", "answer": 2}],
    },
}
TIME = 1796032800.25
NANOSECONDS = "1796032800250000000"
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
WIRE = [
    *ROW["messages"][:2],
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ROW["messages"][3],
]
ANSWER = {"role": "assistant", "content": "Rain."}


def openai_log():
    return [
        {
            "messages": [*WIRE, ANSWER],
            "tools": ROW["tools"],
            "conversation_id": "c-7",
            "created": TIME,
            "model": "tiny-1",
            "finish_reason": "stop",
            "feedback": {"name": "thumbs", "score": 0, "comment": "it was sunny"},
        }
    ]


def request_log():
    return [
        {
            "time": TIME,
            "request": {
                "model": "tiny",
                "messages": WIRE,
                "tools": ROW["tools"],
                "metadata": {"conversation_id": "c-7"},
            },
            "response": {
                "id": "chatcmpl-1",
                "model": "tiny-1",
                "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}],
            },
        },
        {
            "response_id": "chatcmpl-1",
            "feedback": {"name": "thumbs", "score": 0, "comment": "it was sunny"},
        },
    ]


def any_value(value):
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes(value)}}
    raise TypeError(value)


def attributes(values):
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def spans(*each):
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(each)}]}]}


def span(values, events=(), **fields):
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat tiny",
        "endTimeUnixNano": NANOSECONDS,
        "attributes": attributes(values),
        "events": [{"name": name, "attributes": attributes(found)} for name, found in events],
        **fields,
    }


FACTS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "tiny",
    "gen_ai.response.model": "tiny-1",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.conversation.id": "c-7",
}
INPUT = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather in Köln?"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "call-1", "name": "weather", "arguments": {"city": "Köln"}}],
    },
    {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call-1", "response": '{"sky": "rain"}'}],
    },
]
CONTENT = {
    "gen_ai.system_instructions": [{"type": "text", "content": "Answer briefly."}],
    "gen_ai.input.messages": INPUT,
    "gen_ai.output.messages": [
        {"role": "assistant", "parts": [{"type": "text", "content": "Rain."}], "finish_reason": "stop"}
    ],
    "gen_ai.tool.definitions": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
}
EVALUATION = (
    "gen_ai.evaluation.result",
    {
        "gen_ai.evaluation.name": "thumbs",
        "gen_ai.evaluation.score.value": 0.0,
        "gen_ai.evaluation.explanation": "it was sunny",
        "gen_ai.response.id": "chatcmpl-1",
    },
)


def genai():
    return [spans(span({**FACTS, **CONTENT}, [EVALUATION]))]


def genai_as_text():
    content = {name: json.dumps(value) for name, value in CONTENT.items()}
    return [spans(span({**FACTS, **content}, [EVALUATION]))]


def genai_in_log_records():
    """Content in an event of its own, which may come before its span."""
    record = {"eventName": "gen_ai.client.inference.operation.details", "spanId": "eee19b7ec3c1b174"}
    records = [
        {**record, "attributes": attributes(CONTENT)},
        {"eventName": EVALUATION[0], "spanId": "eee19b7ec3c1b174", "attributes": attributes(EVALUATION[1])},
    ]
    return [
        {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]},
        spans(span(FACTS)),
    ]


def genai_before_1_37():
    events = [
        ("gen_ai.system.message", {"content": "Answer briefly."}),
        ("gen_ai.user.message", {"content": "Weather in Köln?"}),
        ("gen_ai.assistant.message", {"tool_calls": [CALL]}),
        ("gen_ai.tool.message", {"id": "call-1", "content": '{"sky": "rain"}'}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": ANSWER}),
        EVALUATION,
    ]
    tool = {
        "llm.request.functions.0.name": "weather",
        "llm.request.functions.0.parameters": '{"type": "object"}',
    }
    return [spans(span({**FACTS, **tool, "gen_ai.system": "openai"}, events))]


def genai_flattened():
    """As instrumentations wrote before there were conventions for content."""
    tool = {
        "llm.request.functions.0.name": "weather",
        "llm.request.functions.0.parameters": '{"type": "object"}',
    }
    values = {**FACTS, **tool}
    for place, message in enumerate(WIRE):
        at = f"gen_ai.prompt.{place}"
        values[f"{at}.role"] = message["role"]
        if message["content"] is not None:
            values[f"{at}.content"] = message["content"]
        if "tool_call_id" in message:
            values[f"{at}.tool_call_id"] = message["tool_call_id"]
    at = "gen_ai.prompt.2.tool_calls.0"
    values |= {f"{at}.id": "call-1", f"{at}.name": "weather", f"{at}.arguments": '{"city": "Köln"}'}
    values |= {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Rain."}
    return [spans(span({**values, "gen_ai.completion.0.finish_reason": "stop"}, [EVALUATION]))]


def openinference_values():
    values = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "tiny-1",
        "llm.finish_reason": "stop",
        "session.id": "c-7",
        "llm.tools.0.tool.json_schema": json.dumps(ROW["tools"][0]),
    }
    for place, message in enumerate(WIRE):
        at = f"llm.input_messages.{place}.message"
        values[f"{at}.role"] = message["role"]
        if message["content"] is not None:
            values[f"{at}.content"] = message["content"]
        if "tool_call_id" in message:
            values[f"{at}.tool_call_id"] = message["tool_call_id"]
    call = "llm.input_messages.2.message.tool_calls.0.tool_call"
    values |= {f"{call}.id": "call-1", f"{call}.function.name": "weather"}
    values[f"{call}.function.arguments"] = '{"city": "Köln"}'
    values["llm.output_messages.0.message.role"] = "assistant"
    values["llm.output_messages.0.message.content"] = "Rain."
    return values


ANNOTATION = {"span_id": "eee19b7ec3c1b174", "name": "thumbs", "score": 0.0, "explanation": "it was sunny"}


def openinference():
    return [spans(span(openinference_values())), ANNOTATION]


def openinference_exported():
    """One object a span, as Phoenix exports them."""
    context = {"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "eee19b7ec3c1b174"}
    document = {
        "context": context,
        "end_time": "2026-11-30T10:00:00.250+00:00",
        "attributes": openinference_values(),
    }
    return [{**document, "status_code": "OK"}, ANNOTATION]


def langfuse():
    return [
        {
            "id": "o-1",
            "trace_id": "t-1",
            "type": "GENERATION",
            "parent_observation_id": "",
            "session_id": "c-7",
            "input": json.dumps({"messages": WIRE, "tools": ROW["tools"]}),
            "output": json.dumps(ANSWER),
            "provided_model_name": "tiny-1",
            "finish_reason": "stop",
            "end_time": "2026-11-30 10:00:00.250000",
        },
        {
            "id": "s-1",
            "trace_id": "t-1",
            "observation_id": "o-1",
            "name": "thumbs",
            "value": 0,
            "data_type": "NUMERIC",
            "comment": "it was sunny",
        },
    ]


FORMS = [
    openai_log,
    request_log,
    genai,
    genai_as_text,
    genai_in_log_records,
    genai_before_1_37,
    genai_flattened,
    openinference,
    openinference_exported,
    langfuse,
]
