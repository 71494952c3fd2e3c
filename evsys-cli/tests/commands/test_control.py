"""The commands that send requests to a running experiment, which a stand-in plays here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evsys_record.control import remove_address, write_address
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.experiment.control.listening import listen
from evsys_runtime.experiment.control.server import ControlServer


class Loop:
    """Carries out at once, in the server's thread."""

    def call_soon_threadsafe(self, call, *arguments):
        call(*arguments)


@contextmanager
def standing_in(record: ExperimentRecord, reply: dict) -> Iterator[list[dict]]:
    asked: list[dict] = []
    listener = listen(record.directory)
    server = ControlServer(
        listener,
        loop=Loop(),
        status=lambda: b'{"ok":true}\n',
        act=lambda request, _peer: asked.append(request) or reply,
    )
    write_address(record.directory, listener.address)
    server.start()
    try:
        yield asked
    finally:
        remove_address(record.directory)
        server.close()


@pytest.fixture
def running(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        record = ExperimentRecord.create(
            tmp_path / ".evsys/experiments", "trial", b"version: 1\n", facts={"arms": []}
        )
        with record.lock:
            yield record


@pytest.mark.parametrize(
    ("words", "request_", "reply", "printed"),
    [
        (
            ("pause", "last"),
            {"request": "pause", "arm": None, "now": False},
            {"runs": None},
            "all runs hold after the current step",
        ),
        (
            ("pause", "last", "a", "--now"),
            {"request": "pause", "arm": "a", "now": True},
            {"runs": ["a-s0"]},
            "a-s0 hold after the current rollouts",
        ),
        (("unpause", "trial"), {"request": "unpause", "arm": None}, {"runs": None}, "all runs continue"),
        (
            ("stop", "-1"),
            {"request": "stop", "arm": None},
            {"runs": None},
            "all runs end after the current step",
        ),
        (
            ("extend", "last", "--steps", "5", "--money", "0.5"),
            {"request": "extend", "steps": 5, "seconds": None, "money": 0.5, "tokens": None},
            {"limits": {"steps": 10, "usd": 2.5}},
            "budget.steps is 10, budget.usd is 2.5",
        ),
        (
            ("set", "last", "max_concurrent_arms=2"),
            {"request": "set", "values": {"max_concurrent_arms": 2}},
            {"values": {"max_concurrent_arms": 2}},
            "max_concurrent_arms is 2",
        ),
    ],
)
def test_a_command_sends_its_request_and_prints_the_effect(evsys, running, words, request_, reply, printed):
    with standing_in(running, {"ok": True, **reply}) as asked:
        done = evsys(*words, "--reason", "to see", "--by", "ann")
    assert (done.code, done.out) == (0, f"{running.experiment_id}: {printed}\n")
    assert asked == [{**request_, "reason": "to see", "by": "ann"}]


def test_a_refusal_is_an_error_with_its_hint(evsys, running):
    with standing_in(running, {"ok": False, "error": "there is no arm 'b'", "hint": "arms: a"}):
        done = evsys("stop", "last", "b")
    assert (done.code, done.err) == (1, "there is no arm 'b'; arms: a\n")


def test_json_has_the_reply(evsys, running):
    with standing_in(running, {"ok": True, "runs": ["a-s0"]}):
        done = evsys("pause", "last", "a", "--json")
    others = {"limits": None, "values": None}
    wanted = {"format": 1, "experiment_id": running.experiment_id, "ok": True, "runs": ["a-s0"], **others}
    assert done.json == wanted


def test_an_experiment_without_a_process_is_named(evsys, running):
    done = evsys("pause", "last")
    assert done.code == 1
    assert done.err.startswith(f"{running.experiment_id} is not running; if it is incomplete, `evsys resume ")


@pytest.mark.parametrize(
    "words", [("extend", "last", "--steps", "0"), ("set", "last"), ("set", "last", "width")]
)
def test_a_wrong_value_is_refused_before_anything_is_sent(evsys, running, words):
    assert evsys(*words).code == 2
