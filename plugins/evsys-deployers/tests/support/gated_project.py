"""A project with a trained checkpoint of the mock backend, and tasks to gate it by."""

import json
from pathlib import Path

from click.testing import CliRunner

from evsys_deployers.gate.command import gate

CONFIG = """version: 1
name: trial
metadata:
  benchmark: {name: val, path: steering.jsonl, max_tokens: 4}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 12, save_every: 4, batch_size: 8, learning_rate: 0.05}}
  backend: {kind: mock}
"""
SUITE = """version: 1
target: {name: gate, path: gate.jsonl, max_tokens: 4}
margin: 0.2
"""


def tasks(path, prefix, answer="a", count=60):
    lines = [
        {
            "task_id": f"{prefix}{place}",
            "instruction": f"{prefix} {place * place + 7} please",
            "verifier": {"name": "exact_match", "expected": answer},
            "metadata": {"parity": place % 2},
        }
        for place in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def carry_out(candidate, against="base", suite=SUITE, *options):
    Path("gate.yaml").write_text(suite)
    arguments = [candidate, "--against", against, "--suite", "gate.yaml", "-q", "--json", *options]
    done = CliRunner().invoke(gate, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, json.loads(done.stdout)


def checkpoint(run):
    name, _, folder = run.partition("/")
    return max(
        Path(f".evsys/experiments/{name}/runs/{folder}/checkpoints").glob("[0-9]*"),
        key=lambda each: int(each.name),
    )
