"""A sweep, or continual learning, that gets a SIGKILL at any of its writes, and is taken up again until it is done, comes to the
same bits.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random

import attrs
import pytest
from outcomes import outcome_of
from small_project import METADATA, RUN, Project

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

DRIVER = Path(__file__).with_name("killed_sweep.py")
EVERY_4 = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 4\n    temperature: 1.0")
SWEEP = f"""matrix:
  axes: {{algorithm.params.learning_rate: [0.05, 0.02, 0.1]}}
base_run:{RUN.replace("steps: 6", "steps: 8, save_every: 2")}
n_repeats: 2
"""
CONTINUAL = f"""continual:
  replay: 0.5
  datasets:
  - {{name: val, path: first.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  - {{name: b, path: second.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  - {{name: c, path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
run:{RUN.partition("  data:")[0]}{RUN[RUN.index("  model:") :].replace("steps: 6", "steps: 5, save_every: 2")}
n_repeats: 2
"""
EXPERIMENTS = {"sweep": SWEEP, "continual": CONTINUAL}
MOST_KILLS = 3


@attrs.frozen
class Whole:
    """An experiment that nobody killed: how many writes it took, and what it came to."""

    text: str
    backend: str
    writes: int
    outcome: dict


def make_project(root, text, backend):
    root.mkdir()
    project = Project(root)
    for name, letters in (("first", "abcd"), ("second", "efgh")):
        project.write(f"{name}.jsonl", [{"prompt": f"say {c}", "completion": c} for c in letters])
    project.tasks([(f"t{i * 5 % 12:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")])
    project.config(text.replace("kind: mock", f"kind: {backend}"), metadata=EVERY_4)


def life(root, fatal, what):
    """One process: its exit code, and what it printed."""
    command = [sys.executable, str(DRIVER), str(root), str(fatal), what]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout


def whole(folder, text, backend):
    make_project(folder / "whole", text, backend)
    code, said = life(folder / "whole", 0, "run")
    assert code == 0
    return Whole(
        text=text, backend=backend, writes=int(said.split()[0]), outcome=outcome_of(folder / "whole")
    )


def kill_and_resume(root, whole, fatal, chance):
    """Kill an experiment at its n-th write, now and then its resumption too, until it is done; how often it was killed."""
    make_project(root, whole.text, whole.backend)
    code, _ = life(root, fatal, "run")
    for kills in itertools.count():
        if code == 0:
            return kills
        again = kills + 1 < MOST_KILLS and chance.random() < 0.3
        code, _ = life(root, chance.randint(1, whole.writes) if again else 0, "resume")
    raise AssertionError


def check(root, whole, number, count):
    """A kill in the `number`-th of `count` equal parts of an experiment's writes."""
    chance = Random(f"{whole.backend} {number} of {count}")
    fatal = 1 + int(whole.writes * 0.98 * (number + chance.random()) / count)
    kill_and_resume(root, whole, fatal, chance)
    assert outcome_of(root) == whole.outcome, f"killed at write {fatal}"


def killed_in_each_of(**parts):
    """A test for each of so many equal parts of each experiment's writes."""
    cases = [(what, number, count) for what, count in parts.items() for number in range(count)]
    return pytest.mark.parametrize(("what", "number", "count"), cases)


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    """Makes an experiment that nobody kills, once on each backend."""

    @cache
    def made(what, backend):
        return whole(tmp_path_factory.mktemp(f"{what}-{backend}"), EXPERIMENTS[what], backend)

    return made


def test_the_sweep_is_one_to_be_killed(unkilled):
    sweep = unkilled("sweep", "mock")
    assert sweep.outcome["status"] == "completed"
    assert len(sweep.outcome) == 8  # 3 arms at 2 seeds, with conclusion and status
    assert sweep.writes > 500


def test_continual_learning_is_one_to_be_killed(unkilled):
    learning = unkilled("continual", "mock")
    assert learning.outcome["status"] == "completed"
    assert len(learning.outcome) == 8  # 3 stages at 2 seeds, with conclusion and status
    [matrix] = learning.outcome["conclusion"]["forgetting"]
    assert all(value is not None for row in matrix["values"] for value in row)
    assert learning.writes > 500


@killed_in_each_of(sweep=3, continual=2)
def test_an_experiment_that_is_killed_comes_to_the_same_bits(tmp_path, unkilled, what, number, count):
    check(tmp_path / "killed", unkilled(what, "mock"), number, count)


@pytest.mark.slow
@killed_in_each_of(sweep=50, continual=40)
def test_an_experiment_that_is_killed_anywhere_comes_to_the_same_bits(
    tmp_path, unkilled, what, number, count
):
    check(tmp_path / "killed", unkilled(what, "mock"), number, count)


@pytest.mark.slow
@killed_in_each_of(sweep=5, continual=5)
def test_an_experiment_on_a_real_model_that_is_killed_comes_to_the_same_bits(
    tmp_path, unkilled, what, number, count
):
    check(tmp_path / "killed", unkilled(what, "local"), number, count)
