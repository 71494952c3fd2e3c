"""`evsys audit` on a record that a run wrote."""

from __future__ import annotations

import json

import jsonschema
import pytest

from evsys_runtime.experiment.result_schemas import result_schema

CONFIG = """version: 1
name: audited
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 2}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 6, batch_size: 4, lora_rank: 4, learning_rate: 0.1}}
  backend: {kind: mock}
"""


@pytest.fixture
def folder(evsys, tmp_path):
    """The folder of an experiment that ended."""
    (tmp_path / "train.jsonl").write_text('{"prompt": "say a", "completion": "x"}\n' * 12, encoding="utf-8")
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"case {i}, now a",
            "verifier": {"name": "exact_match", "expected": "x"},
        }
        for i in range(20)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tasks), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    assert evsys("run", "config.yaml", "--json", "--full").code == 0
    (found,) = (tmp_path / ".evsys" / "experiments").glob("*-audited")
    return found


def test_an_audit_that_passes_ends_with_0_and_a_table(evsys, folder):
    outcome = evsys("audit", "last")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["PART", "OF", "RESULT", "CHECKS"]
    assert lines[-1].startswith(f"{folder.name} (")
    assert ": passed, " in lines[-1]
    assert "differs" not in outcome.out


def test_an_audit_that_finds_a_difference_ends_with_1_and_names_it(evsys, folder):
    path = folder / "conclusion.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    effect = tree["comparisons"][0]["effect"]
    tree["comparisons"][0]["effect"] = 0.123
    path.write_text(json.dumps(tree), encoding="utf-8")
    outcome = evsys("audit", folder.name)
    assert outcome.code == 1
    assert f"effect: 0.123 on record, {effect:.12g} recomputed (within 1e-09)" in outcome.out
    document = evsys("audit", "last", "--json")
    assert document.code == 1
    jsonschema.Draft202012Validator(result_schema("audit")).validate(document.json)
    assert document.json["passed"] is False
    assert document.json["differs"] == sum(c["state"] == "differs" for c in document.json["checks"]) > 0


def test_a_saved_audit_that_differs_marks_the_experiment_until_it_passes(evsys, folder):
    path = folder / "runs" / "run-s0" / "evaluations.jsonl"
    written = path.read_bytes()
    path.write_bytes(written + b"\n")
    assert evsys("audit", "last").code == 1
    assert not (folder / "audit.json").exists()
    assert evsys("audit", "last", "--save").code == 1
    assert "audit: differs" in evsys("history").out
    assert "its audit found 1 difference" in evsys("show", "last").out
    path.write_bytes(written)
    assert evsys("audit", "last", "--save").code == 0
    assert "audit: differs" not in evsys("history").out
