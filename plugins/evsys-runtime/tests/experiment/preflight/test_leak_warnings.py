"""Leaks are reported before anything is spent, whatever made the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import METADATA

from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data import benchmark
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.preflight.leak_warnings import (
    leak_warnings,
    quick_leak_warnings,
    reads_few_local_rows,
)
from evsys_runtime.experiment.prior.final_tests import planned_tests

ROWS = [{"prompt": f"say {c}", "completion": c} for c in "abcdefghijklmnopqrst"]
FOUND = "12 of 20 tasks (60%) are among the training rows"
CHECK = "`evsys data check` lists them"


def warnings(project, metadata=METADATA, **options):
    return leak_warnings(load_experiment(project.config(metadata=metadata, **options)))


@pytest.fixture
def leaked(project):
    project.write("train.jsonl", ROWS[:12])
    project.tasks([(f"t{i:02d}", row["prompt"], "a") for i, row in enumerate(ROWS)], verbatim=True)
    return project


def test_a_leak_that_will_make_the_verdict_invalid_is_reported_with_its_share_and_the_threshold(leaked):
    assert warnings(leaked) == (f"benchmark 'val': {FOUND}; above 10% the verdict is INVALID; {CHECK}",)


def test_a_leak_that_is_allowed_is_still_reported(leaked):
    metadata = METADATA.replace("  benchmark:", "  allow_leak: true\n  benchmark:")
    assert warnings(leaked, metadata) == (f"benchmark 'val': {FOUND}; {CHECK}",)


def test_a_small_leak_is_reported_without_a_threat(leaked):
    leaked.write("train.jsonl", [*ROWS[:2], *({"prompt": f"other {n}", "completion": "x"} for n in range(8))])
    assert warnings(leaked) == (f"benchmark 'val': 2 of 20 tasks (10%) are among the training rows; {CHECK}",)


@pytest.mark.parametrize("method", ["hash", "ratio"])
def test_a_leak_through_copies_is_reported_whatever_the_split(leaked, method):
    leaked.write("train.jsonl", [row | {"id": n} for n in range(6) for row in ROWS])
    split = f"{{kind: split, params: {{method: {method}, parts: {{train: 0.5, test: 0.5}}, keep: train}}}}"
    text = leaked.config().read_text(encoding="utf-8").partition("run:")[2]
    changed = text.replace("[{kind: jsonl_to_chat}]", f"[{split}, {{kind: jsonl_to_chat}}]")
    assert changed != text
    (warning,) = leak_warnings(load_experiment(leaked.config(f"run:{changed}")))
    assert "of 20 tasks" in warning
    assert "INVALID" in warning


def test_nothing_is_reported_without_a_leak(project):
    assert warnings(project) == ()


def test_rows_that_cannot_be_read_are_reported(leaked):
    path = leaked.root / "train.jsonl"
    path.write_text('{"prompt": \n', encoding="utf-8")
    (warning,) = warnings(leaked)
    assert warning.startswith("training rows can't be used, so a run would fail: ")


def test_a_template_with_an_unknown_column_is_reported_without_a_benchmark(project):
    params = '{user_template: "Q: {nope}", assistant_column: completion}'
    text = project.config(metadata="").read_text(encoding="utf-8").partition("run:")[2]
    changed = text.replace("{kind: jsonl_to_chat}", f"{{kind: jsonl_to_chat, params: {params}}}")
    assert changed != text
    (warning,) = quick_leak_warnings(load_experiment(project.config(f"run:{changed}", metadata="")))
    assert warning.startswith("training rows can't be used, so a run would fail: transform 'jsonl_to_chat'")
    assert "no column 'nope'" in warning


def test_only_rows_of_small_local_files_are_searched_at_once(project):
    plan = load_experiment(project.config())
    assert reads_few_local_rows(plan)
    with (project.root / "train.jsonl").open("ab") as file:
        file.truncate(33 * 2**20)
    assert not reads_few_local_rows(plan)


def test_the_kinds_of_matches_are_counted_where_not_all_are_equal(leaked):
    rows = [ROWS[0], {"prompt": "SAY  b", "completion": "b"}, *ROWS[2:12]]
    leaked.write("train.jsonl", rows)
    (warning,) = warnings(leaked)
    assert f"{FOUND} (11 equal, 1 normalized)" in warning


def test_stored_and_inline_rows_are_searched_at_once(project, run_text):
    text = "run:" + run_text(
        (
            "path: train.jsonl",
            "rows: [{prompt: a, completion: a}, {prompt: b, completion: b}, {prompt: c, completion: c}, {prompt: d, completion: d}]",
        ),
        ("source_kind: jsonl", "source_kind: in_memory"),
    )
    assert reads_few_local_rows(load_experiment(project.config(text)))


def test_rows_that_are_too_many_are_reported_as_not_searched(leaked):
    plan = load_experiment(leaked.config())
    with (leaked.root / "train.jsonl").open("ab") as file:
        file.truncate(33 * 2**20)
    (warning,) = quick_leak_warnings(plan)
    assert warning.startswith(
        "training rows were not searched for benchmark tasks: they are not in local files"
    )


def test_a_run_warns_once_before_it_trains_and_counts_the_kinds_in_its_conclusion(leaked):
    leaked.write(
        "train.jsonl", [*ROWS[:12], *({"prompt": f"other {n}", "completion": "x"} for n in range(8))]
    )
    result = Experiment.from_yaml(leaked.config(metadata=METADATA), quiet=True, skip_grader_check=True).run()
    log = (Path(result.directory) / "experiment.log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in log]
    leaks = [place for place, event in enumerate(events) if event["event"] == "data.leak"]
    assert len(leaks) == 1
    assert FOUND in events[leaks[0]]["what"]
    assert not [event for event in events[: leaks[0]] if "run_id" in event]  # no run had begun
    assert result.conclusion.verdict == "INVALID"
    assert result.conclusion.extra["leaked_by_match"] == {"equal": 12}


def test_a_file_of_tasks_is_read_once(leaked, monkeypatch):
    read = []
    before = benchmark.read_rows
    monkeypatch.setattr(
        benchmark, "read_rows", lambda path, **options: (read.append(path.name), before(path, **options))[1]
    )
    plan = load_experiment(leaked.config(metadata=METADATA))
    quick_leak_warnings(plan)
    planned_tests(plan, None)
    assert read == ["tasks.jsonl"]


def test_columns_that_training_asks_and_scoring_leaves_out_are_named(project):
    rows = [
        {"instruction": "Sort them.", "input": f"pear {c} fig", "output": c, "notes": "for us only"}
        for c in "abcdefgh"
    ]
    project.write("train.jsonl", rows)
    project.write("tasks.jsonl", [row | {"task_id": f"t{n}"} for n, row in enumerate(rows * 2)])
    tasks = "{kind: jsonl_to_tasks, params: {instruction_column: instruction, expected_column: output}}"
    metadata = METADATA.replace("path: tasks.jsonl", f"path: tasks.jsonl\n    transforms: [{tasks}]")
    assert metadata != METADATA
    found = warnings(project, metadata)
    assert (
        "train.jsonl: columns that reach no message, so the model never sees them: 'notes' (8 of 8 rows)"
        in found
    )
    assert "benchmark 'val': question columns missing from the prompt: 'input' (16 of 16 tasks)" in found
    result = Experiment.from_yaml(project.config(metadata=metadata), quiet=True, skip_grader_check=True).run()
    (arm,) = [arm for arm in result.arms if arm.arm == "run"]
    assert any("'notes' (8 of 8 rows)" in text for text in arm.warnings)
