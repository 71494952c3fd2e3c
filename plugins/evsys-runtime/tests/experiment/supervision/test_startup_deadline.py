"""What comes before runs have their watchdogs ends, too, and says what it waited for."""

from __future__ import annotations

import asyncio
import threading

import pytest
from small_project import METADATA

from evsys.errors import DataError
from evsys_runtime.background import in_background
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.supervision import startup_deadline as module
from evsys_runtime.experiment.supervision.startup_deadline import beforehand

HANGS = """
import threading
from evsys_sdk import register_transform

over = threading.Event()
calls = []

@register_transform("hangs")
def hangs(rows):
    calls.append(None)
    if len(calls) > 2:  # searched for tasks, and trained on
        over.wait(60)
    yield from rows
"""


@pytest.fixture
def over():
    event = threading.Event()
    yield event
    event.set()


def waiting(over, seconds=0.1):
    async def wait():
        async with beforehand("things are read", seconds=seconds, boundary="data", plugin="benchmark"):
            await in_background(over.wait, 60)

    asyncio.run(wait())


def test_what_never_comes_is_given_up_as_a_failure_of_its_boundary(over, caplog):
    with pytest.raises(DataError, match=r"^waited 0.1 s while things are read, and gave up") as caught:
        waiting(over)
    assert (caught.value.facts["stalled"], caught.value.facts["plugin"]) == (True, "benchmark")
    assert "watchdog.floor_seconds" in caught.value.hint
    assert "still waiting while things are read: 0.05 s by now" in caplog.text


def test_what_comes_in_time_is_told_of_nowhere(over, caplog):
    over.set()
    waiting(over, seconds=60)
    assert caplog.records == []


def test_code_that_blocks_everything_meanwhile_is_told_with_its_line(caplog, monkeypatch):
    monkeypatch.setattr(module, "TOLD_AFTER_SECONDS", 0.1)
    told = threading.Event()
    monkeypatch.setattr(module, "_tell", lambda text: (module.getLogger("evsys").warning(text), told.set()))

    async def blocks():
        async with beforehand("graders are checked", seconds=60, boundary="verifier", plugin="benchmark"):
            told.wait(30)

    asyncio.run(blocks())
    assert "the event loop has been blocked for 0 s by" in caplog.text
    assert "test_startup_deadline.py" in caplog.text


def test_rows_that_never_come_again_when_an_experiment_is_taken_up_end_the_resume(project, run_text):
    project.code("plugins", HANGS)
    text = "run:" + run_text(("transforms: [", "transforms: [{kind: hangs}, "))
    extra = "watchdog: {floor_seconds: 0.5}\nbudget: {steps: 2}\n"
    first = Experiment.from_yaml(
        project.config(text, metadata=METADATA, extra=extra), quiet=True, skip_grader_check=True
    ).run()
    assert first.status == "budget_stopped"
    again = Experiment.resume(first.directory, overrides=["budget.steps=9"], quiet=True)
    with pytest.raises(DataError, match=r"waited 0.5 s while the rows of its runs are read.*in hangs\)"):
        again.run()
