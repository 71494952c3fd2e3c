"""Arms in processes of their own: the same bits, failures that stay with their arm, and nothing left alive."""

from __future__ import annotations

import copy
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import outcome_of
from small_project import METADATA, RUN, Project

from evsys_record.events import read_events
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.experiment import Experiment

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

PROCESSES = "\nlauncher: {kind: processes, params: {workers: 2, threads: 1}}\n"
SCORED = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 3\n    temperature: 1.0")
SWEEP = f"""matrix:
  axes: {{algorithm.params.learning_rate: [0.05, 0.02]}}
base_run:{RUN.replace("steps: 6", "steps: 6, save_every: 2")}
"""
CONTINUAL = f"""continual:
  replay: 0.5
  datasets:
  - {{name: val, path: first.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  - {{name: b, path: second.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
run:{RUN.partition("  data:")[0]}{RUN[RUN.index("  model:") :]}
"""

ODD = """
import json, os, signal
from pathlib import Path
from evsys_record.control import read_address, send_request
from evsys_sdk import SFT, register_algorithm

@register_algorithm("odd")
class Odd(SFT):
    class Config(SFT.Config):
        pass

    async def build_batch(self, step_idx):
        act = os.environ.get("ODD_" + str(step_idx))
        if act and self.config.learning_rate == 0.02 and not Path("acted").exists():
            Path("acted").touch()
            print("about to", act)
            exec(act)
        return await super().build_batch(step_idx)
"""
SWEEP_OF_ODD = SWEEP.replace("kind: sft", "kind: odd")


def made(folder, text, extra=""):
    folder.mkdir()
    project = Project(folder)
    project.code("odd", ODD)
    for name, letters in (("first", "abcd"), ("second", "efgh")):
        project.write(f"{name}.jsonl", [{"prompt": f"say {c}", "completion": c} for c in letters])
    project.config(text, metadata=SCORED, extra=extra)
    return folder


def run(folder):
    return Experiment.from_yaml(folder / "config.yaml", quiet=True).run()


def placed(directory):
    """The processes that the arms had."""
    events = read_events(Path(directory))
    places = [event.facts["place"] for event in events if event.event == "run.placed"]
    return [int(place.split()[1].rstrip(",")) for place in places]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [SWEEP, pytest.param(CONTINUAL, marks=pytest.mark.slow)],
    ids=["sweep", "continual"],
)
def test_arms_in_processes_of_their_own_come_to_the_same_bits(tmp_path, text):
    here = made(tmp_path / "here", text)
    there = made(tmp_path / "there", text, PROCESSES)
    run(here)
    result = run(there)
    assert outcome_of(there) == outcome_of(here)
    assert len(placed(result.directory)) == len(result.arms)
    assert not any(map(alive, placed(result.directory)))


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
KILL_PARENT = "os.kill(os.getppid(), signal.SIGKILL)"
INTERRUPT_PARENT = "os.kill(os.getppid(), signal.SIGINT)"
STOP = "send_request(Path(os.environ['RECORD']), {'request': 'stop', 'reason': 'enough'})"


def record_of(folder):
    [path] = (folder / ".evsys/experiments").glob("*/experiment.json")
    return path.parent


def command(folder, *words, **environment):
    """A process of its own that runs or resumes an experiment, since it is going to be ended."""
    code = "import sys; from evsys_runtime.experiment import Experiment as E; E.{}(sys.argv[1], quiet=True).run()"
    how = "resume" if "resume" in words else "from_yaml"
    place = record_of(folder) if how == "resume" else folder / "config.yaml"
    return subprocess.run(
        [sys.executable, "-c", code.format(how), str(place)],
        env={**os.environ, **environment},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the odd sweep comes to where nothing happens to it."""
    folder = made(tmp_path_factory.mktemp("odd") / "here", SWEEP_OF_ODD)
    run(folder)
    return outcome_of(folder)


def test_a_killed_process_is_a_failed_arm_and_the_others_complete(tmp_path, monkeypatch, undisturbed):
    monkeypatch.setenv("ODD_4", KILL)
    folder = made(tmp_path / "killed", SWEEP_OF_ODD, PROCESSES)
    result = run(folder)
    killed, other = sorted(result.arms, key=lambda arm: arm.status == "completed")
    assert (killed.status, killed.failure.boundary, other.status) == ("failed", "launcher", "completed")
    assert "ended without a result: killed by SIGKILL" in killed.failure.message
    assert f"    about to {KILL}" in killed.failure.message
    assert killed.run.steps >= 3
    Experiment.resume(record_of(folder), quiet=True).run()
    assert outcome_of(folder) == undisturbed


def completed(outcome):
    """Without the scorings that were cut off, which a run says of itself."""
    for run in outcome.values():
        if "metrics" in run:
            lines = run["metrics"]["validation"]
            run["metrics"]["validation"] = [line for line in lines if all(value for _, value in line[1][-1:])]
    return outcome


def test_ctrl_c_ends_the_processes_and_a_resume_comes_to_the_same_bits(tmp_path, undisturbed):
    folder = made(tmp_path / "interrupted", SWEEP_OF_ODD, PROCESSES)
    done = command(folder, ODD_4=INTERRUPT_PARENT)
    assert "KeyboardInterrupt" in done.stderr
    assert not any(map(alive, placed(record_of(folder))))
    statuses = [run.read_result()["status"] for run in ExperimentRecord.open(record_of(folder)).runs()]
    assert "cancelled" in statuses
    assert command(folder, "resume").returncode == 0
    assert completed(outcome_of(folder)) == completed(copy.deepcopy(undisturbed))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")
def test_processes_end_with_a_killed_experiment_and_a_resume_comes_to_the_same_bits(tmp_path, undisturbed):
    folder = made(tmp_path / "killed", SWEEP_OF_ODD, PROCESSES)
    assert command(folder, ODD_4=KILL_PARENT).returncode == -signal.SIGKILL
    for pid in placed(record_of(folder)):
        if alive(pid):
            assert select.select([os.pidfd_open(pid)], [], [], 60)[0]
    assert command(folder, "resume").returncode == 0
    assert completed(outcome_of(folder)) == completed(copy.deepcopy(undisturbed))
