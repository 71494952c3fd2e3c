"""Tasks that an arm was trained on: on record, and the verdict with and without them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_project import METADATA

from evsys_runtime.experiment.result_schemas import validate_result

TASKS = [(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("hijklmnopqrs")]


@pytest.fixture
def leaky(project):
    """Twelve tasks, of which `train.jsonl` has one, `t00`, and `other.jsonl` another."""
    project.tasks(TASKS, verbatim=True)
    project.write("other.jsonl", [{"prompt": "say i", "completion": "i"}] * 4)
    return project


def record_of(result):
    return Path(result.directory)


def test_the_record_says_which_tasks_were_trained_on(leaky):
    result = leaky.experiment().run()
    check = json.loads((record_of(result) / "data_check.json").read_text(encoding="utf-8"))
    validate_result(check, "data_check")
    [dataset] = check["datasets"]
    [entry] = dataset["benchmarks"]
    assert (check["flagged"], dataset["source"], dataset["arms"], dataset["rows"]) == (
        1,
        "train.jsonl",
        ["run"],
        8,
    )
    assert [task["task_id"] for task in entry["flagged"]] == ["t00"]


def test_the_verdict_is_given_without_the_tasks_that_were_trained_on_too(leaky):
    result = leaky.experiment().run()
    rest = result.conclusion.without_flagged
    assert rest is not None
    assert (rest.benchmark, rest.tasks) == ("val", ("t00",))
    assert (result.conclusion.comparisons[0].n_tasks, rest.comparisons[0].n_tasks) == (12, 11)
    written = json.loads((record_of(result) / "conclusion.json").read_text(encoding="utf-8"))
    assert written["without_flagged"]["tasks"] == ["t00"]
    page = (record_of(result) / "conclusion.md").read_text(encoding="utf-8")
    assert f"**without 1 task of val found among the training rows: {rest.verdict}" in page


def test_a_task_that_any_arm_was_trained_on_counts_for_none(leaky, run_text):
    text = "matrix:\n  axes:\n    data.path: [train.jsonl, other.jsonl]\nbase_run:" + run_text()
    rest = leaky.experiment(text).run().conclusion.without_flagged
    assert rest is not None
    assert rest.tasks == ("t00", "t01")
    assert [c.n_tasks for c in rest.comparisons] == [10, 10]


def test_weights_from_a_checkpoint_that_was_trained_on_a_task_are_found(leaky, run_text):
    """Also over a run in between."""
    first = leaky.experiment(f"run:{run_text()}").run()
    leaky.write("train.jsonl", [{"prompt": f"name {c}", "completion": c} for c in "abcdefgh"])
    for _ in range(2):
        checkpoint = f"{first.arms[0].run_dir}/{first.arms[0].run.final_checkpoint}"
        start = (
            "model: {name: evsys/tiny}",
            f"model: {{name: evsys/tiny, init_from_checkpoint: {checkpoint}}}",
        )
        first = leaky.experiment(f"run:{run_text(start)}").run()
        assert first.conclusion.without_flagged.tasks == ("t00",)


def test_weights_from_a_checkpoint_without_its_rows_leave_a_warning(leaky, run_text):
    first = leaky.experiment(f"run:{run_text()}").run()
    (data,) = record_of(first).glob("runs/*/data")
    shutil.rmtree(data)
    checkpoint = f"{first.arms[0].run_dir}/{first.arms[0].run.final_checkpoint}"
    start = ("model: {name: evsys/tiny}", f"model: {{name: evsys/tiny, init_from_checkpoint: {checkpoint}}}")
    result = leaky.experiment(f"run:{run_text(start)}").run()
    assert any("whose training rows can't be searched" in warning for warning in result.conclusion.warnings)


def test_rows_that_hold_no_task_leave_one_verdict(project):
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("ijklmnopqrst")])
    result = project.experiment().run()
    assert result.conclusion.without_flagged is None
    check = json.loads((record_of(result) / "data_check.json").read_text(encoding="utf-8"))
    assert check["flagged"] == 0


def test_tasks_of_another_entry_are_on_record_and_leave_one_verdict(leaky):
    leaky.write(
        "clean.jsonl",
        [
            {
                "task_id": f"c{i}",
                "instruction": f"add {i}",
                "verifier": {"name": "exact_match", "expected": "x"},
            }
            for i in range(12)
        ],
    )
    entries = "  benchmark:\n    - {name: val, path: clean.jsonl, max_tokens: 4}\n    - {name: held, path: tasks.jsonl, split: test, max_tokens: 4}\n"
    result = leaky.experiment(metadata=METADATA.partition("  benchmark:")[0] + entries).run()
    check = json.loads((record_of(result) / "data_check.json").read_text(encoding="utf-8"))
    flagged = {e["benchmark"]: len(e["flagged"]) for e in check["datasets"][0]["benchmarks"]}
    assert flagged == {"val": 0, "held": 1}
    assert result.conclusion.without_flagged is None


def test_a_dry_run_searches_nothing(leaky):
    result = leaky.experiment(dry=True).run()
    assert not (record_of(result) / "data_check.json").exists()
    assert result.conclusion.without_flagged is None


def test_a_search_that_fails_leaves_a_warning_and_the_verdict(leaky, monkeypatch):
    def broken(_path):
        raise OSError("the disk is gone")

    monkeypatch.setattr("evsys_runtime.experiment.preflight.contamination._lines", broken)
    result = leaky.experiment().run()
    assert result.status == "completed"
    assert result.conclusion.verdict is not None
    assert "training rows were not searched for benchmark tasks: the disk is gone" in result.warnings
