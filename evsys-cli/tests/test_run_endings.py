"""`evsys run` in a process of its own: who reads its output, which signal ends it, and what the exit code says then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from evsys_cli.running import Printing, _report_interruption
from evsys_runtime.experiment.result_schemas import validate_result

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and descriptors")

COMMAND = [sys.executable, "-m", "evsys_cli.main"]


def facts(root: Path) -> dict:
    (record,) = root.glob(".evsys/experiments/*/experiment.json")
    return json.loads(record.read_text(encoding="utf-8"))


@pytest.fixture
def unread():
    """The writing end of a pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def command(config: Path, *arguments: str, **streams) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, "run", str(config), *arguments],
        cwd=config.parent,
        check=False,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def test_a_run_whose_output_nobody_reads_is_finished_and_says_so_by_its_code(config, unread):
    done = command(config, stdout=unread, stderr=unread)
    assert done.returncode == 0
    assert facts(config.parent)["status"] == "completed"
    assert len([w for w in facts(config.parent)["warnings"] if "print_progress" in w]) == 1


def test_a_failed_run_whose_output_nobody_reads_still_fails(config, unread):
    done = command(config, "--set", "run.algorithm.params.max_length=2", stdout=unread, stderr=unread)
    assert done.returncode == 4
    assert facts(config.parent)["status"] == "failed"


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_summary_that_nobody_reads_is_on_record_and_the_code_is_that_of_the_run(config, unread, arguments):
    done = command(config, "--quiet", *arguments, stdout=unread)
    assert done.returncode == 0
    (record,) = config.parent.glob(".evsys/experiments/*")
    assert done.stderr == f"The result can't be printed (Broken pipe); it is on record: {record}\n"
    assert (record / "conclusion.json").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_result_that_was_asked_for_and_finds_no_room_is_a_failure(config):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = command(config, "--quiet", "--json", stdout=full)
    assert done.returncode == 1
    assert "can't be printed (No space left on device); it is on record: " in done.stderr
    assert facts(config.parent)["status"] == "completed"


def test_a_wrong_config_that_nobody_hears_of_still_ends_with_2(tmp_path, unread):
    wrong = tmp_path / "config.yaml"
    wrong.write_text("version: 1\nnme: x\n", encoding="utf-8")
    assert command(wrong, stderr=unread).returncode == 2


def test_a_process_without_outputs_is_no_fault(config):
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *COMMAND, "run", str(config), "--json", "--full"],
        check=False,
    )
    assert done.returncode == 0
    assert facts(config.parent)["status"] == "completed"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("SIGTERM", ()), ("SIGHUP", ("--json", "--full")), ("SIGINT", ("--json", "--full"))],
)
def test_a_signal_ends_with_its_code_a_cancelled_record_and_its_place(config, name, arguments):
    endless = config.read_text(encoding="utf-8").replace("steps: 4", "steps: 100000")
    config.write_text(endless, encoding="utf-8")
    # A shell may have started this test run in the background, where SIGINT is ignored and children inherit that.
    process = subprocess.Popen(
        [*COMMAND, "run", str(config), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [
            signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ],
    )
    number = getattr(signal, name)
    try:
        deadline = time.monotonic() + 60
        while not list(config.parent.glob(".evsys/experiments/*/runs/run-s0/training/metrics.jsonl")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    found = facts(config.parent)
    assert (found["status"], found["exit_code"]) == ("cancelled", 128 + number)
    (record,) = config.parent.glob(".evsys/experiments/*")
    interrupted, kept, onward = err.splitlines()[-3:]
    assert interrupted == f"Interrupted; cancelled, record: {record}"
    assert kept.startswith(("run-s0 starts over: none of its ", "run-s0 resumes from step "))
    assert onward == f"To resume: evsys resume {record}"
    if arguments:
        launch, done = map(json.loads, out.splitlines())
        assert (launch["event"], done["event"]) == ("launch", "done")
        document = done["result"]
        validate_result(document, "experiment_result")
        assert (document["status"], document["directory"]) == ("cancelled", str(record))
        assert document["arms"][0]["run"]["steps"] > 0
    else:
        assert out == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_an_interruption_is_told_below_the_live_line(terminal, monkeypatch, capsys):
    result = SimpleNamespace(status="cancelled", directory="over there", dry=False, arms=())
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert _report_interruption(result, 130, KeyboardInterrupt(), Printing()) == 130
    said = "Interrupted; cancelled, record: over there\nTo resume: evsys resume 'over there'\n"
    assert capsys.readouterr().err == "\n" * terminal + said


def test_an_interruption_tells_what_runs_have_kept(capsys):
    def arm(name, status="cancelled", steps=0, saved=None):
        run = SimpleNamespace(run_id=name, steps=steps, final_checkpoint=saved)
        return SimpleNamespace(status=status, run=run)

    saved = arm("a-s0", steps=12, saved="checkpoints/10")
    arms = [saved, arm("b-s0", steps=1), arm("c-s0"), arm("d-s0", "completed", 9), *[saved] * 5]
    result = SimpleNamespace(status="cancelled", directory="there", dry=False, arms=arms)
    _report_interruption(result, 130, KeyboardInterrupt(), Printing())
    lines = capsys.readouterr().err.splitlines()[1:-1]
    assert lines[:2] == [
        "a-s0 resumes from step 10 of the 12 steps it made",
        "b-s0 starts over: none of its 1 step is in a checkpoint (save_every sets how often one is saved)",
    ]
    assert lines[2:] == [lines[0]] * 3 + ["and 2 more interrupted runs"]


def test_an_interrupt_before_anything_is_on_record_says_that(evsys, config, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("evsys_runtime.experiment.experiment.bound_benchmarks", interrupted)
    outcome = evsys("run", config, "--json", "--full")
    assert outcome.code == outcome.json["error"]["exit_code"] == 130
    assert outcome.err == "Interrupted before anything was recorded.\n"


def test_an_experiment_that_can_not_go_on_names_its_record(evsys, config, monkeypatch):
    def broken(*_):
        raise RuntimeError("no room for listeners")

    monkeypatch.setattr("evsys_runtime.experiment.experiment.run_listeners", broken)
    outcome = evsys("run", config)
    assert outcome.code == 1
    (record,) = config.parent.glob(".evsys/experiments/*")
    assert outcome.err.startswith(f"failed; record: {record}\n")
    assert facts(config.parent)["status"] == "failed"


def test_a_failure_is_said_once_in_the_summary_with_what_to_do(evsys, config):
    outcome = evsys(
        "run",
        config,
        "--quiet",
        "--set",
        "run.algorithm.params.learning_rate=1e30",
        "--set",
        "run.backend.kind=local",
    )
    assert outcome.code == 1
    assert outcome.out.count("'cross_entropy' is nan") == 1
    assert "lower the learning rate" in outcome.out
    assert outcome.err == ""


def test_what_the_mock_says_is_marked_as_such(evsys, config):
    said = evsys("run", config, "--quiet").out
    assert "(a model simulated by mock): " in said
    assert "warning: backend 'mock' only imitates a model" in said


LEAKS = """
import os
from evsys_sdk import register_verifier

@register_verifier("leaks")
def leaks(model_output, expected, params):
    raise RuntimeError(f"401 for {os.environ['CANARY_API_KEY']}")

leaks.oracle = lambda expected, params: expected
"""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_message_that_ends_a_command_tells_no_secret(config, monkeypatch, more):
    monkeypatch.setenv("CANARY_API_KEY", "canary-9f8e7d6c5b4a3928")
    code = config.parent / "src"
    code.mkdir()
    (code / "__init__.py").write_text(LEAKS, encoding="utf-8")
    tasks = config.parent / "tasks.jsonl"
    tasks.write_text(tasks.read_text("utf-8").replace('"exact_match"', '"leaks"'), encoding="utf-8")
    done = command(config, *more)
    assert done.returncode == 4
    assert "401 for [redacted]" in done.stdout + done.stderr
    assert "canary-9f8" not in done.stdout + done.stderr


# --- lines of JSON -----------------------------------------------------------------------------------------------------


NOISE = """
import os, subprocess, sys
from evsys_sdk import register_callback

@register_callback("noise")
class Noise:
    def evsys_run_started(self):
        print("of python")
        os.write(1, b"of C\\n")
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
"""


def lines_of(config, *arguments, **options):
    done = command(config, "--quiet", "--json", *arguments, stdout=subprocess.PIPE, **options)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_json_is_two_lines_whatever_else_is_printed(config):
    (config.parent / "src").mkdir()
    (config.parent / "src/noise.py").write_text(NOISE, encoding="utf-8")
    config.write_text(config.read_text(encoding="utf-8") + "callbacks: [{kind: noise}]\n", encoding="utf-8")
    done, (launch, end) = lines_of(config)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("of ")] == [
        "of python",
        "of C",
        "of a child",
    ]
    (record,) = config.parent.glob(".evsys/experiments/*")
    assert (launch["event"], launch["experiment_id"], launch["directory"]) == (
        "launch",
        record.name,
        str(record),
    )
    assert launch["control"]["socket"].endswith(".sock")
    assert (end["event"], end["status"], end["exit_code"], end["runs"]) == (
        "done",
        "completed",
        0,
        {"completed": 1},
    )
    assert max(map(len, done.stdout.splitlines())) <= 1000


def test_an_error_before_the_launch_is_the_only_line(config):
    config.write_text("version: 1\n" + "".join(f"wrong_{i}: 1\n" for i in range(50)), encoding="utf-8")
    done, (end,) = lines_of(config)
    assert (done.returncode, end["event"], end["exit_code"]) == (2, "done", 2)
    assert end["error"]["problems"]
    assert len(end["error"]["problems"]) + end["more_problems"] >= 50
    assert len(done.stdout) <= 1001
    _, (whole,) = lines_of(config, "--full")
    assert len(whole["error"]["problems"]) == len(end["error"]["problems"]) + end["more_problems"]


def test_a_detached_experiment_outlives_its_command(config):
    done = command(config, "--detach", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    record = config.parent / ".evsys/experiments" / done.stdout.strip()
    waited = subprocess.run(
        [*COMMAND, "wait", str(record), "--timeout", "60"],
        check=False,
        cwd=config.parent,
        capture_output=True,
    )
    assert waited.returncode == 0
    assert facts(config.parent)["status"] == "completed"


def test_an_experiment_that_can_not_begin_is_not_detached(config):
    config.write_text("version: 1\nnme: x\n", encoding="utf-8")
    done = command(config, "--detach", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nme" in done.stderr
