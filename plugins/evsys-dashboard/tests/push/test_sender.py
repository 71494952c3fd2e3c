"""A run never waits for a server, and loses nothing when one side is away."""

import asyncio
import threading

import pytest

from evsys.errors import ConfigError, StoreError
from evsys.types import ExperimentResult, Usage
from evsys_dashboard.push.logger import EvsysLogger
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.sender import Sender


class Away:
    """A target that can't be reached until it is told."""

    def __init__(self, ingest, failure=None):
        self.ingest = ingest
        self.failure = failure
        self.failed = threading.Event()

    def held(self, experiment):
        if self.failure is not None:
            self.failed.set()
            raise self.failure
        return self.ingest.held("lab", experiment)

    def take(self, experiment, pieces):
        return self.ingest.take("lab", experiment, pieces).held


@pytest.fixture
def sender(lab, ingest):
    senders = []

    def make(failure=None):
        record = lab.begin("one")
        lab.run(record).close()
        target = Away(ingest, failure)
        sender = Sender(Pusher(record.directory, target), seconds=0.001)
        senders.append(sender)
        sender.start()
        return sender, target, record

    yield make
    for each in senders:
        each.close(10)


def test_everything_written_before_the_end_is_sent_by_then(sender, ingest):
    sending, _, record = sender()
    (record.directory / "conclusion.md").write_text("It holds.", encoding="utf-8")
    assert sending.finish(30)
    assert {"conclusion.md", "runs/a-s0/training/metrics.jsonl"} <= {
        each.file for each in ingest.held("lab", record.experiment_id)
    }


def test_a_server_that_comes_back_gets_everything(sender):
    sending, target, _ = sender(StoreError("away"))
    assert target.failed.wait(30)
    target.failure = None
    assert sending.finish(30)


def test_a_server_that_stays_away_is_the_reason(sender):
    sending, _, _ = sender(StoreError("away"))
    assert not sending.finish(30)
    assert sending.failure.message == "away"


def test_a_refusal_ends_it(sender):
    sending, _, _ = sender(ConfigError("the key isn't valid"))
    sending._thread.join(30)
    assert not sending._thread.is_alive()
    assert not sending.finish(0)


def test_lines_behind_the_announced_end_are_sent_before_the_process_ends(sender, ingest):
    sending, _, record = sender()
    assert sending.finish(30)
    (record.directory / "conclusion.md").write_text("It holds.", encoding="utf-8")
    sending.close(30)
    assert "conclusion.md" in {each.file for each in ingest.held("lab", record.experiment_id)}


def result(record):
    return ExperimentResult(
        experiment_id=record.experiment_id, name="one", directory=str(record.directory), status="completed",
        arms=(), conclusion=None, usage=Usage(), seconds=1.0, exit_code=0,
    )  # fmt: skip


def test_without_a_server_the_end_states_how_to_send_the_record_later(lab, monkeypatch, capsys):
    monkeypatch.delenv("EVSYS_API_URL", raising=False)
    monkeypatch.delenv("EVSYS_API_KEY", raising=False)
    record, logger = lab.begin("one"), EvsysLogger()
    logger.evsys_experiment_started(record.experiment_id, record.directory, ["a"])
    asyncio.run(logger.evsys_experiment_finished(result(record)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        f"EVSYS_API_KEY is not set; to send this record later: evsys sync {record.experiment_id}"
    )


def test_an_unreachable_server_is_named_with_the_unsent_bytes(lab, monkeypatch):
    monkeypatch.setenv("EVSYS_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("EVSYS_API_KEY", "evk_x_y")
    record, logger = lab.whole("one"), EvsysLogger(project="lab")
    logger.evsys_experiment_started(record.experiment_id, record.directory, ["a"])
    with pytest.raises(
        StoreError, match=r"\d+ KiB of the record are not sent \(http://127.0.0.1:9 can't be reached"
    ) as caught:
        asyncio.run(logger.evsys_experiment_finished(result(record)))
    assert caught.value.hint == f"send them with: evsys sync {record.experiment_id}"
