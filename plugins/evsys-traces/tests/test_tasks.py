"""Conversations before a time train, later ones test, and nothing asked on both sides trains."""

import json

import pytest

from evsys.errors import DataError
from evsys_runtime import parse_row
from evsys_traces.tasks import Selection, SplitReport, split_traces

QUESTIONS = [
    "Which tool finds a cheap flight from Cologne to Lisbon in the spring?",
    "How do I cancel the order that I placed on Monday morning by mistake?",
    "Where can I download the invoice for my subscription of last year?",
    "Why was my credit card charged twice for the very same delivery?",
    "Who do I talk to about a broken coffee machine under warranty?",
    "When does the shop in the old harbour open on public holidays?",
    "Can my parcel be left with a neighbour if nobody is at home?",
    "What documents does the rental of a small van require from me?",
    "Does the monthly plan include calls to countries outside Europe?",
    "Is the blue raincoat in a size for tall children still available?",
]


def row(question, day, *, answer="an answer", score=None, error=None):
    facts = {"time": f"2026-11-{day:02}T00:00:00Z"}
    if score is not None:
        facts["feedback"] = [{"name": "thumbs", "score": score}]
    if error:
        facts["error"] = error
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages, "metadata": facts}


@pytest.fixture
def split(tmp_path):
    def split(*rows, **options):
        path = tmp_path / "traces.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        report = SplitReport()
        train, tasks = split_traces(path, Selection(**options), report)
        return list(train), tasks, report

    return split


def days():
    return [row(question, day) for day, question in enumerate(QUESTIONS, 1)]


def test_the_latest_share_becomes_tasks(split):
    train, tasks, report = split(*days())
    assert train == days()[:8]
    assert [task["instruction"][0]["content"] for task in tasks] == QUESTIONS[8:]
    assert (report.rows, report.tasks, report.left_out) == (8, 2, {})
    task = parse_row(tasks[0], "task", 0)
    assert (task.verifier.name, task.verifier.expected) == ("exact_match", "an answer")


def test_the_order_of_the_file_decides_nothing(split):
    train, tasks, _ = split(*reversed(days()))
    assert {each["messages"][0]["content"] for each in train} == set(QUESTIONS[:8])
    assert len(tasks) == 2


def test_rows_that_ask_what_a_task_asks_do_not_train(split):
    again = row(f"  {QUESTIONS[9].upper()} ", 1)
    nearly = row(QUESTIONS[8].replace("outside", "outsde"), 2)
    train, _, report = split(*days(), again, nearly, test_share=0.17)
    assert not [each for each in train if each in (again, nearly)]
    assert report.left_out == {"asks the same as a task": 1, "asks nearly the same as a task": 1}


def test_failed_and_wrong_answers_are_neither(split):
    bad = [
        row("q", 3, error="overloaded"),
        row("r", 10, score=0),
        row("s", 10, score=0.4),
        row("t", 9, answer=" "),
    ]
    train, tasks, report = split(*days(), *bad, row("u", 10, score=1), after=1794096000.0)
    assert len(train) + len(tasks) == 11
    assert report.left_out == {
        "the call failed": 1,
        "feedback says the answer is wrong": 2,
        "the answer has no text": 1,
    }


def test_without_feedback_nothing_counts_as_right_if_asked_for(split):
    judged = [row(question, day, score=1) for day, question in enumerate(QUESTIONS[:4], 1)]
    train, tasks, report = split(*judged, *days()[4:], unjudged=False)
    assert len(train) + len(tasks) == 4
    assert report.left_out["without feedback"] == 6


@pytest.mark.parametrize("after", [0.0, 4e9])
def test_a_time_outside_of_the_log_is_an_error(split, after):
    with pytest.raises(DataError, match="one side"):
        split(*days(), after=after)
