"""A project whose start can be improved, its goal file, and a command line to research in it."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from evsys_autoresearch.runner import Research, run_research

KINDS = {
    "billing": ["invoice", "charge", "refund", "card"],
    "shipping": ["parcel", "courier", "tracking", "delivery"],
    "returns": ["broken", "exchange", "label", "faulty"],
}
START = """version: 1
name: start
metadata:
  hypothesis: a first recipe
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: val.jsonl, max_tokens: 9}
run:
  data:
    source_kind: jsonl
    path: train.jsonl
    transforms: [{kind: jsonl_to_chat, params: {user_column: prompt, assistant_column: answer}}]
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 1e-3, steps: 6, batch_size: 12, lora_rank: 8}}
  backend: {kind: mock}
"""
GOAL = """version: 1
goal: route support questions
objective: {metric: val.mean_reward}
start: start.yaml
levers: [RATE, {path: run.algorithm.params.lora_rank, values: [4, 8]}]
sealed: {path: ../sealed/tasks.jsonl}
budget: {experiments: 3}
confirm: {seeds: 2}
researcher: {kind: random}
""".replace("RATE", "{path: run.algorithm.params.learning_rate, low: 1e-3, high: 2e-1, log: true}")


def _rows(rng, count):
    rows = []
    for i in range(count):
        kind = list(KINDS)[i % 3]
        text = f"my {rng.choice(KINDS[kind])} number {rng.randrange(999)}"
        rows.append((f"t{i}", text, kind))
    return rows


class Lab:
    """A project folder with a goal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".evsys").mkdir(parents=True)
        rng = random.Random(0)
        self.write("start.yaml", START)
        self.write("goal.yaml", GOAL)
        lines = [json.dumps({"prompt": text, "answer": kind}) for _, text, kind in _rows(rng, 48)]
        self.write("train.jsonl", "\n".join(lines) + "\n")
        self.tasks(root / "val.jsonl", _rows(rng, 24))
        self.tasks(root.parent / "sealed/tasks.jsonl", _rows(rng, 24))

    def tasks(self, path, rows):
        path.parent.mkdir(exist_ok=True)
        lines = [
            {"task_id": name, "instruction": text, "verifier": {"name": "exact_match", "expected": kind}}
            for name, text, kind in rows
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def goal(self, **replaced):
        """Change lines of the goal file: `researcher="{kind: greedy}"`."""
        lines = (self.root / "goal.yaml").read_text(encoding="utf-8").splitlines()
        for key, value in replaced.items():
            lines = [line for line in lines if not line.startswith(f"{key}:")] + [f"{key}: {value}"]
        return self.write("goal.yaml", "\n".join(lines) + "\n")

    def begin(self):
        return Research.begin(self.root / "goal.yaml")

    def run(self):
        return run_research(self.begin())

    def journal(self, result):
        text = (Path(result.directory) / "journal.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def evsys(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "evsys_cli.main", *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_PLOTS", "off")
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path / "project")
