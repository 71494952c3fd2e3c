"""Experiments of twelve kinds on the mock backend, run by the command line, and their rewards as `evsys show --json` prints them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

PLUGIN = '''
"""A verifier whose rewards are partly luck, which a hash of the answer and the task decides."""

import hashlib

from evsys import register_verifier


def luck(*parts):
    return int.from_bytes(hashlib.sha256("|".join(parts).encode()).digest()[:6], "big") / 2**48


@register_verifier("skilled")
class Skilled:
    """Passes with a probability that is higher for the answer that was trained."""

    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        if not 0 < len(model_output) <= 2:  # nothing, or the task itself
            return 0.0
        learned = model_output.startswith(params["learned"])
        if params["breaks"] and learned and luck("break", expected, model_output) < params["breaks"]:
            raise RuntimeError("no verdict")
        ability = params["after"] if learned else params["before"]
        chance = (luck(expected) + luck(expected, model_output)) / 2
        if params["credit"]:
            return min(1.0, max(0.0, round(ability + chance - 0.5, 3)))
        return float(chance < ability)
'''
DATA = "  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}\n"
ONE = f"""
run:
{DATA}  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{steps: STEPS, lora_rank: 4, batch_size: 4, learning_rate: 0.1}}}}
  backend: {{kind: mock}}
"""
RATES = """
matrix:
  axes:
    algorithm.params.learning_rate: VALUES
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: STEPS, lora_rank: 4, batch_size: 4}}
  backend: {kind: mock}
"""
STAGES = """
continual:
  replay: 0
  maximum_loss: 0.6
  datasets:
    - {name: val, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: other, benchmark: val, path: other.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: third, benchmark: val, path: third.jsonl, transforms: [{kind: jsonl_to_chat}]}
"""


@attrs.frozen(kw_only=True)
class Kind:
    """An experiment: the verdict it is made for, and what its file and its tasks say.

    Attributes:
        metadata, rest, entry, arms: pieces of the file.
        skill: params of the verifier: the probability of passing `before` and `after` training.
        contents: of a task's number, what it asks, so that equal ones are copies.
        unit: of a task's number, its page, by which `cluster_key` joins tasks.
    """

    verdict: str
    metadata: str = ""
    rest: str = ""
    entry: str = ""
    metric: str = "mean_reward"
    arms: str = ONE
    steps: int = 12
    skill: Mapping[str, object] = attrs.field(factory=dict)
    contents: Callable[[int], int] = lambda number: number
    unit: Callable[[int], int] = lambda number: number // 3
    tasks: int = 60

    @property
    def config(self) -> str:
        """The experiment file."""
        entry = f"{{name: val, path: tasks.jsonl, max_tokens: 2{self.entry}}}"
        return (
            f"version: 1\nname: compared\nmetadata:\n  success_metric: val.{self.metric}\n  benchmark:\n    - {entry}\n"
            f"{self.metadata}{self.rest}{self.arms.replace('STEPS', str(self.steps))}"
        )

    def task(self, number: int) -> dict[str, object]:
        """A task."""
        what = self.contents(number)
        letter = "ab"[what % 2]
        params = {"learned": "xy"[what % 2], "before": 0.45, "after": 0.65, "credit": False, "breaks": 0.0}
        return {
            "task_id": f"t{number:03d}",
            "instruction": f"case {what}, now {letter}",
            "metadata": {"page": str(self.unit(number))},
            "verifier": {"name": "skilled", "expected": f"task {what}", "params": {**params, **self.skill}},
        }


DRAWN = ", temperature: 1.5"
KINDS = {
    "binary": Kind(verdict="SUPPORTED", entry=DRAWN, skill={"after": 0.75}),
    "partial credit": Kind(
        verdict="INCONCLUSIVE", entry=DRAWN, skill={"credit": True, "before": 0.5, "after": 0.52}
    ),
    "recipe": Kind(
        verdict="SUPPORTED",
        arms=RATES.replace("VALUES", "[0.0001, 0.1]"),
        metadata="  baseline: learning_rate-0.0001\n",
        rest="n_repeats: 5\n",
        entry=f"{DRAWN}, num_samples: 2",
        skill={"before": 0.3, "after": 0.8},
    ),
    "clusters": Kind(
        verdict="SUPPORTED",
        entry=f"{DRAWN}, num_samples: 2, cluster_key: page",
        skill={"before": 0.3, "after": 0.7},
        contents=lambda number: number % 50,
    ),
    "few different tasks": Kind(verdict="INVALID", contents=lambda number: number % 6),
    "missing samples": Kind(
        verdict="INCONCLUSIVE",
        entry=f"{DRAWN}, num_samples: 3",
        skill={"before": 0.45, "after": 0.49, "breaks": 0.035},
    ),
    "no_worse": Kind(
        verdict="SUPPORTED",
        metadata="  claim: no_worse\n  margin: 0.2\n",
        entry=DRAWN,
        skill={"before": 0.5, "after": 0.55},
    ),
    "equal": Kind(
        verdict="SUPPORTED",
        metadata="  claim: equal\n  margin: 0.25\n",
        entry=f"{DRAWN}, num_samples: 4",
        skill={"before": 0.5, "after": 0.5},
    ),
    "sweep": Kind(
        verdict="CANDIDATE",
        arms=RATES.replace("VALUES", "[0.0001, 0.01, 0.03, 0.1, 0.2]"),
        metadata="  baseline: learning_rate-0.0001\n",
        entry=f"{DRAWN}, num_samples: 2",
        skill={"before": 0.3, "after": 0.7},
    ),
    "search": Kind(
        verdict="SUPPORTED",
        arms=RATES.replace("VALUES", "{low: 0.02, high: 0.2, log: true}"),
        rest="search: {kind: random, params: {arms: 3}}\nconfirm: {seeds: 4}\n",
        steps=40,
        entry=f"{DRAWN}, num_samples: 2",
        skill={"before": 0.3, "after": 0.75},
    ),
    "pass at k": Kind(
        verdict="SUPPORTED",
        entry=f"{DRAWN}, num_samples: 4, metrics: [pass@2]",
        metric="pass@2",
        skill={"before": 0.3, "after": 0.7},
    ),
    "continual": Kind(
        verdict="REFUTED",
        arms=STAGES + ONE.replace(DATA, ""),
        metadata="  minimum_effect: 0.5\n",
        entry=DRAWN,
        skill={"before": 0.3, "after": 0.75},
    ),
}
COLUMNS = ("side", "run", "task", "unit", "sample", "reward")


def evsys(*arguments: str, cwd: Path, codes: tuple[int, ...] = (0,)) -> Any:
    """What a command prints as JSON; of `run` the line with which it ends."""
    call = "import sys; from evsys_cli.main import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", call, *arguments, "--json"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes, done.stderr[-3000:] or done.stdout[-3000:]
    return json.loads(done.stdout.splitlines()[-1] if arguments[0] == "run" else done.stdout)


@attrs.frozen(kw_only=True)
class Made:
    """An experiment that ended: its conclusion, what an audit of it found, and the results of its runs."""

    kind: Kind
    conclusion: dict[str, Any]
    audit: dict[str, Any]
    runs: list[dict[str, Any]]

    def rewards(self, scorings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[dict[str, object]]:
        """A line a sample of these scorings, by side and run; an empty reward for one without a score."""
        every = [scoring for by_run in scorings.values() for scoring in by_run.values()]
        tasks = sorted({task for scoring in every for task in scoring["task_rewards"]})
        for side, by_run in scorings.items():
            for run, scoring in by_run.items():
                for task in tasks:
                    rewards = scoring["task_rewards"].get(task, [])
                    unit = scoring["clusters"].get(task)
                    missing = scoring["num_samples"] - len(rewards)
                    for sample, reward in enumerate([*rewards, *[None] * missing]):
                        yield {
                            "side": side,
                            "run": run,
                            "task": task,
                            "unit": f"task {task}" if unit is None else f"cluster {unit}",
                            "sample": sample,
                            "reward": "" if reward is None else repr(float(reward)),
                        }

    def write(self, path: Path, scorings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Write these lines as CSV, which R reads without a package."""
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rewards(scorings))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """An experiment of a kind, run once."""
    known: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in known:
            known[name] = _make(KINDS[name], tmp_path_factory.mktemp("project"))
        return known[name]

    return make


def _make(kind: Kind, root: Path) -> Made:
    (root / "src").mkdir()
    (root / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    (root / "src" / "skilled.py").write_text(PLUGIN, encoding="utf-8")
    (root / "config.yaml").write_text(kind.config, encoding="utf-8")
    lessons = {"train": {"a": "x", "b": "y"}, "other": {"a": "q", "b": "r"}, "third": {"a": "s", "b": "y"}}
    for name, answers in lessons.items():
        rows = [{"prompt": f"say {c}", "completion": answers[c]} for c in "aab" * 4]
        _write(root / f"{name}.jsonl", rows)
    _write(root / "tasks.jsonl", [kind.task(number) for number in range(kind.tasks)])
    evsys("run", "config.yaml", cwd=root, codes=(0, 1, 4))
    shown = evsys("show", "last", cwd=root)
    runs = [
        evsys("show", f"last/{run['past']['run_id']}", cwd=root)["runs"][0]["result"] for run in shown["runs"]
    ]
    audit = evsys("audit", "last", cwd=root)
    return Made(kind=kind, conclusion=shown["conclusion"], audit=audit, runs=runs)


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
