"""One conversation in every format is one row, and whatever is left out is counted."""

import random

import log_formats
import pytest
from log_formats import ANSWER, FORMS, ROW, WIRE, openai_log, span, spans

from evsys.errors import DataError
from evsys_runtime import parse_row
from evsys_traces.importing import ImportReport, files_of, import_traces


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_one_conversation_in_every_format_is_one_row(imported, form):
    rows, report = imported(*form())
    assert rows == [ROW]
    assert (report.rows, report.feedback, report.feedback_unmatched) == (1, 1, 0)
    assert report.left_out == {}


def test_a_row_trains(imported):
    [row], _ = imported(*openai_log())
    assert [message.role for message in parse_row(row, "chat", 0).messages][-1] == "assistant"


def turn(count, conversation=None, time=0, text=""):
    messages = [{"role": "user", "content": "1"}]
    for number in range(2, count + 1):
        messages += [{"role": "assistant", "content": f"{number}{text}"}, {"role": "user", "content": "more"}]
    document = {
        "messages": [*messages, {"role": "assistant", "content": f"end {count}{text}"}],
        "created": time,
    }
    return {**document, **({"conversation_id": conversation} if conversation else {})}


def states():
    """A conversation after one, two and three turns: each with its whole history."""
    full = [
        {"role": role, "content": f"{role} {number}"} for number in range(3) for role in ("user", "assistant")
    ]
    return [{"messages": full[: 2 * turns], "id": f"r-{turns}"} for turns in (1, 2, 3)]


@pytest.mark.parametrize("conversation", [None, "c"])
def test_only_the_last_state_of_a_conversation_is_kept(imported, conversation):
    documents = [
        {**each, "created": 100 + place, **({"conversation_id": conversation} if conversation else {})}
        for place, each in enumerate(states())
    ]
    random.Random(1).shuffle(documents)
    rows, report = imported(*documents)
    assert [len(row["messages"]) for row in rows] == [6]
    assert report.left_out == {"an earlier state of a conversation": 2}


@pytest.mark.parametrize("conversation", [None, "c"])
def test_feedback_on_an_earlier_answer_stays_with_the_conversation(imported, conversation):
    own = {"conversation_id": conversation} if conversation else {}
    judged = {"response_id": "r-2", "feedback": {"name": "thumbs", "score": 1}}
    [row], report = imported(judged, *({**each, **own} for each in states()))
    assert row["metadata"]["feedback"] == [{"name": "thumbs", "score": 1.0, "answer": 2}]
    assert report.feedback_unmatched == 0


def test_another_opening_within_a_conversation_is_a_row_of_its_own(imported):
    """Applications ask for a title, or a summary, under the same id."""
    title = {"messages": [{"role": "user", "content": "Title?"}, ANSWER], "conversation_id": "c"}
    rows, _ = imported({**states()[0], "conversation_id": "c"}, title)
    assert len(rows) == 2


def test_equal_openings_without_an_id_are_different_conversations(imported):
    others = [
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": each}]}
        for each in "ab"
    ]
    rows, report = imported(*others, others[0])
    assert len(rows) == 2
    assert report.left_out == {"the same call as an earlier one": 1}


def test_a_failed_call_keeps_its_error(imported):
    [row], _ = imported({"request": {"messages": WIRE[:2]}, "response": {"error": {"message": "overloaded"}}})
    assert row["metadata"]["error"] == "overloaded"
    assert row["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"hello": 1}, "not a known kind of record"),
        ({"messages": []}, "without content: capturing it was off"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "without an answer"),
        ({"messages": [{"role": "system", "content": "hi"}, ANSWER]}, "without a message of a user"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, ANSWER]},
            "content is more than text",
        ),
        (spans(span({"http.method": "GET"})), "a span that isn't a model's"),
        (spans(span({"gen_ai.operation.name": "execute_tool"})), "a span of execute_tool, not a chat"),
        (spans(span(log_formats.FACTS)), "without content: capturing it was off"),
        (
            spans(span({**log_formats.FACTS, "gen_ai.input.messages": '[{"role": "user", "par'})),
            "content is cut off or not JSON",
        ),
        (spans(span({**log_formats.FACTS, "evsys.experiment": "x"})), "a rollout of an evsys experiment"),
        (spans(span({"openinference.span.kind": "TOOL"})), "a span of kind TOOL, not LLM"),
        (
            {"id": "o", "trace_id": "t", "type": "SPAN"},
            "an observation of type SPAN, not GENERATION",
        ),
    ],
)
def test_what_is_left_out_is_counted_by_reason(imported, document, reason):
    rows, report = imported(document, *openai_log())
    assert len(rows) == 1
    assert report.left_out == {reason: 1}


def test_the_place_of_the_first_one_left_out_is_reported(imported, tmp_path):
    _, report = imported(*openai_log(), {"hello": 1}, {"hello": 2})
    assert report.examples == {"not a known kind of record": f"{tmp_path / 'log.jsonl'}:2"}


def test_a_line_that_is_not_json_is_left_out_with_its_place(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n{"me\n'
    )
    report = ImportReport()
    assert len(list(import_traces([path], report))) == 1
    [(reason, count)] = report.left_out.items()
    assert (count, report.examples[reason]) == (1, f"{path}:2")


def test_a_named_format_refuses_the_others(imported):
    rows, report = imported(*openai_log(), *log_formats.langfuse(), format="langfuse")
    assert len(rows) == 1
    assert report.left_out == {"not a record of langfuse": 1}


def test_a_folder_without_logs_says_what_is_known(tmp_path):
    (tmp_path / "export.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="no logs") as caught:
        files_of([tmp_path])
    assert "JSON Lines" in (caught.value.hint or "")


def test_responses_of_the_newer_api_are_conversations(imported):
    [row], _ = imported(
        {
            "request": {"model": "m", "instructions": "Answer briefly.", "input": "Weather?"},
            "response": {
                "output": [
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I ask."}]},
                    {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "1", "output": "rain"},
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "Rain."}],
                    },
                ]
            },
        }
    )
    assert [message["role"] for message in row["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert row["messages"][2] == {
        "role": "assistant",
        "content": "",
        "reasoning": "I ask.",
        "tool_calls": [{"name": "weather", "arguments": {}, "id": "1"}],
    }
