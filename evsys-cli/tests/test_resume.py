"""`evsys resume` and `evsys run --resume`: which experiment is meant, what is said, and the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_runtime.experiment.result_schemas import validate_result

COMMAND = [sys.executable, "-m", "evsys_cli.main"]

FAULTS = """
import asyncio
from pathlib import Path
from evsys_sdk import SFT, register_algorithm

ASKED = Path(__file__).parent

@register_algorithm("faulty")
class Faulty(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 2 and (ASKED / "break").exists():
            raise RuntimeError("as it was told to")
        if step_idx == 2 and (ASKED / "hang").exists():
            (ASKED / "there").touch()
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    (ASKED / "again").touch()  # as a plugin that lets nobody end it
        return await super().build_batch(step_idx)
"""


@pytest.fixture
def faulty(config) -> Path:
    """The experiment, with an algorithm that breaks or hangs at its third step where a file of that name says so."""
    (config.parent / "src").mkdir()
    (config.parent / "src/faults.py").write_text(FAULTS, encoding="utf-8")
    text = config.read_text(encoding="utf-8").replace("kind: sft", "kind: faulty")
    config.write_text(text.replace("steps: 4,", "steps: 4, save_every: 1,"), encoding="utf-8")
    return config


@pytest.fixture
def broken(evsys, faulty) -> Path:
    """The record of an experiment whose only run failed at its third step, and wouldn't fail again."""
    (faulty.parent / "src/break").touch()
    assert evsys("run", faulty, "--quiet").code == 1
    (faulty.parent / "src/break").unlink()
    return record_of(faulty)


def record_of(config: Path) -> Path:
    (record,) = config.parent.glob(".evsys/experiments/*/experiment.json")
    return record.parent


def attempts(record: Path) -> list:
    return [(a["reason"], a["from_step"]) for a in read_json(record / "runs/run-s0/run.json")["attempts"]]


@pytest.mark.parametrize("named", ["", "id", "prefix", "name", "folder", "last"])
def test_an_experiment_is_called_by_its_id_its_name_its_folder_or_not_at_all(evsys, broken, named):
    called = {
        "id": broken.name,
        "prefix": broken.name[:12],
        "name": "trial",
        "folder": broken,
        "last": "last",
    }
    outcome = evsys("resume", *([called[named]] if named else []))
    assert outcome.code == 0
    assert outcome.err.startswith(f"Resuming {broken.name}\n")
    assert "completed" in outcome.out
    assert attempts(broken) == [("start", 0), ("resume", 2)]


def test_a_complete_experiment_is_printed_again_and_nothing_is_done(evsys, broken):
    evsys("resume", "--quiet")
    outcome = evsys("resume", broken, "--json", "--full")
    assert outcome.code == 0
    assert outcome.err == f"Nothing to do: {broken.name} is complete.\n"
    validate_result(outcome.json, "experiment_result")
    assert outcome.json["status"] == "completed"
    assert len(attempts(broken)) == 2
    assert evsys("resume").code == 2
    assert "there is no unfinished experiment in" in evsys("resume").err


def test_run_with_resume_goes_on_with_the_newest_of_the_same_file(evsys, faulty, broken):
    other = faulty.with_name("other.yaml")
    other.write_text(faulty.read_text(encoding="utf-8") + "\n# another\n", encoding="utf-8")
    refused = evsys("run", other, "--resume")
    assert refused.code == 2
    assert "there is no unfinished experiment of this file as it is now in" in refused.err
    refused = evsys("run", faulty, "--resume", "--set", "run.seed=4")
    assert refused.code == 2
    outcome = evsys("run", faulty, "--resume", "--json", "--full")
    assert outcome.code == 0
    assert outcome.json["experiment_id"] == broken.name
    assert attempts(broken) == [("start", 0), ("resume", 2)]


def test_an_experiment_that_can_not_be_read_is_named(evsys, broken):
    (broken / "experiment.json").write_text('{"format": 1, "na', encoding="utf-8")
    for words in (("resume",), ("run", broken.parents[2] / "config.yaml", "--resume")):
        result = evsys(*words)
        assert result.code == 2
        assert f"warning: {broken.name} is passed over: " in result.err
        assert f"experiment.json can't be read in {broken.name}: put it back from a copy" in result.err


def test_a_dry_run_is_not_resumed(evsys, faulty):
    assert "a dry run can't be resumed" in evsys("run", faulty, "--resume", "--dry").err


def test_what_changed_is_told_as_one_message(evsys, faulty, broken):
    with (faulty.parent / "train.jsonl").open("a", encoding="utf-8") as rows:
        rows.write('{"prompt": "say z", "completion": "z"}\n')
    outcome = evsys("resume", "--json", "--full")
    assert outcome.code == 2
    assert "the rows have changed since" in outcome.json["error"]["message"]
    assert attempts(broken) == [("start", 0)]
    forked = evsys("resume", "--fork", "--set", "run.algorithm.params.steps=5", "--json", "--full")
    assert (forked.code, forked.json["status"]) == (0, "completed")
    assert forked.err.startswith(f"Branching off from {broken.name}\n")
    assert forked.json["arms"][0]["run"]["steps"] == 5
    fork = Path(forked.json["directory"])
    assert attempts(fork) == [("branch", 2), ("resume", 2)]
    assert read_json(fork / "experiment.json")["parent_experiment_id"] == broken.name
    assert attempts(broken) == [("start", 0)]


def test_a_second_process_is_refused_by_name(evsys, broken):
    with ExperimentRecord.open(broken).lock:
        outcome = evsys("resume", broken)
    assert outcome.code == 1
    assert f"{broken.name} is in use by process {os.getpid()} on " in outcome.err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_twice_stops_at_once_and_the_experiment_can_be_resumed(evsys, faulty):
    asked = faulty.parent / "src"
    (asked / "hang").touch()
    process = subprocess.Popen(
        [*COMMAND, "run", str(faulty), "--quiet"],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for marker in ("there", "again"):
            deadline = time.monotonic() + 60
            while not (asked / marker).exists():
                assert time.monotonic() < deadline
                assert process.poll() is None
                os.sched_yield()
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    record = record_of(faulty)
    assert said.decode() == f"\nStopped immediately.\nTo resume: evsys resume {record}\n"
    (asked / "hang").unlink()
    outcome = evsys("resume", "--quiet", "--json", "--full")
    assert (outcome.code, outcome.json["status"]) == (0, "completed")
    assert attempts(record_of(faulty)) == [("start", 0), ("resume", 2)]
