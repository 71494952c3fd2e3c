"""Leaks are reported before anything is spent, whatever made the rows."""

from __future__ import annotations

import pytest
from small_project import METADATA

from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.checks.leak_warnings import leak_warnings, reads_few_local_rows

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


def test_rows_that_cannot_be_read_are_reported_as_not_searched(leaked):
    path = leaked.root / "train.jsonl"
    path.write_text('{"prompt": \n', encoding="utf-8")
    (warning,) = warnings(leaked)
    assert warning.startswith("training rows were not searched for benchmark tasks: ")


def test_only_rows_of_small_local_files_are_searched_at_once(project):
    plan = load_experiment(project.config())
    assert reads_few_local_rows(plan)
    with (project.root / "train.jsonl").open("ab") as file:
        file.truncate(33 * 2**20)
    assert not reads_few_local_rows(plan)
