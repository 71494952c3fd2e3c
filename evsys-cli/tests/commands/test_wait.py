"""Waiting for an experiment, and watching it, from another process than the one that runs it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from evsys_cli.board import Board
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.reader import Line
from evsys_runtime.experiment.result_schemas import validate_result
from evsys_runtime.tools import reading


@pytest.fixture
def running(tmp_path):
    """An experiment that this process holds the lock of, with one event."""
    record = ExperimentRecord.create(
        tmp_path / ".evsys/experiments", "trial", b"version: 1\n", facts={"arms": []}
    )
    with record.lock:
        record.events.append("experiment.started", runs=["a-s0"])
        yield record


def test_waiting_for_an_experiment_that_has_ended_returns_its_exit_code(evsys, config):
    assert evsys("run", config, "--quiet").code == 0
    done = evsys("wait", "--json")
    validate_result(done.json, "wait")
    assert (done.code, done.json["reason"], done.json["status"]) == (0, "end", "completed")
    words = evsys("wait")
    assert words.out.rstrip().endswith(f"completed (event {done.json['cursor']})")


def test_a_timeout_has_an_exit_code_of_its_own(evsys, running):
    done = evsys("wait", "--timeout", "0", "--json")
    assert (done.code, done.json["reason"], done.json["status"]) == (124, "timeout", "running")


def test_an_event_ends_the_wait_and_its_number_continues_it(evsys, running):
    running.events.append("evaluation.finished", run="a-s0", attempt=1, benchmark="val")
    running.events.append("evaluation.finished", run="a-s0", attempt=1, benchmark="test")
    first = evsys("wait", "--for", "evaluation.finished", "--json").json
    assert (first["cursor"], first["event"]["facts"]) == (2, {"benchmark": "val"})
    second = evsys("wait", "--for", "evaluation.finished", "--after", "2", "--json").json
    assert (second["cursor"], second["event"]["facts"]) == (3, {"benchmark": "test"})


def test_an_event_that_comes_while_waiting_is_seen(evsys, running, monkeypatch):
    monkeypatch.setattr(reading.time, "sleep", lambda _: running.events.append("checkpoint.saved", step=1))
    done = evsys("wait", "--for", "checkpoint.saved")
    assert (done.code, done.out.rstrip()) == (0, f"{running.experiment_id}: checkpoint.saved (event 2)")


def test_an_experiment_whose_process_is_gone_ends_the_wait_with_a_failure(evsys, running):
    running.lock.release()
    done = evsys("wait", "--json")
    assert (done.code, done.json["status"]) == (1, "crashed")


def test_watching_prints_events_and_how_it_ended(evsys, config):
    evsys("run", config, "--quiet")
    words = evsys("watch").out.splitlines()
    assert "experiment.started" in words[0]
    assert any("evaluation.finished run-s0 benchmark=val" in line for line in words)
    assert words[-1].split(" ", 1)[1].startswith("completed: ")
    events = [json.loads(line) for line in evsys("watch", "--json").out.splitlines()]
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert (events[0]["event"], events[-1]["event"]) == ("experiment.started", "experiment.finished")


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def event(name, run="a/b-s0", seconds=0, **facts):
    at = (MOMENT + timedelta(seconds=seconds)).isoformat()
    values = {"seq": 1, "at": at, "event": name, "run": run, "attempt": 1, "facts": facts}
    return Line(file="events.jsonl", run=None, values=values)


def test_a_board_has_a_line_for_each_run_with_its_step_loss_scores_and_time_left():
    board = Board()
    assert board.read(event("experiment.started", run=None, runs=["a/b-s0", "c-s0"])) == ("a/b-s0", "c-s0")
    board.read(event("data.prepared", rows=8, dropped={}, from_step=10))
    board.read(event("run.started", total_steps=30))
    time = (MOMENT + timedelta(seconds=5)).isoformat()
    metrics = {"step": 20, "time": time, "values": {"loss": 0.25}}
    file = "runs/a-b-s0/training/metrics.jsonl"
    assert board.read(Line(file=file, run="a-b-s0", values=metrics)) == ("a/b-s0",)
    board.read(event("evaluation.started", benchmark="val", step=20, tasks=3))
    assert board.runs["a/b-s0"].text == "running, step 20/30, loss 0.25, evaluating val, 5 s of training left"
    board.read(event("evaluation.finished", benchmark="val", step=20, status="completed", metrics={"m": 0.5}))
    board.read(event("run.finished", status="completed", steps=30, seconds=9.0))
    assert board.runs["a/b-s0"].text == "completed, step 30/30, loss 0.25, val.m 0.500"
    assert board.runs["c-s0"].text == "waiting"
