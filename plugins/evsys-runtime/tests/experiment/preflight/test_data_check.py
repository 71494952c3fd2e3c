"""Which data is looked at for which arms, and which tasks it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_project import METADATA

from evsys.errors import ConfigError, DataError
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.preflight.data_check import check_data

COUNTING = """\
from evsys_sdk import register_transform

@register_transform("counting")
class Counting:
    streaming = True

    def __init__(self, **kw):
        pass

    def __call__(self, rows):
        for row in rows:
            with open("read.txt", "a", encoding="utf-8") as stream:
                stream.write("row\\n")
            yield row
"""


@pytest.fixture
def leaky(project):
    """Twelve tasks, of which `train.jsonl` has one and `other.jsonl` another."""
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("hijklmnopqrs")], verbatim=True)
    project.write("other.jsonl", [{"prompt": "say i", "completion": "i"}] * 4)
    return project


def found(project: Any, text: str, **options: Any) -> dict[tuple[str, ...], list[str]]:
    check = check_data(load_experiment(project.config(text)), **options)
    return {
        dataset.arms: [task.task_id for entry in dataset.benchmarks for task in entry.flagged]
        for dataset in check.datasets
    }


def test_arms_that_share_data_are_checked_together_and_others_on_their_own(leaky, run_text):
    text = (
        "matrix:\n  axes:\n    data.path: [train.jsonl, other.jsonl]\n    algorithm.params.steps: [2, 3]\nbase_run:"
        + run_text()
    )
    plan = load_experiment(leaky.config(text))
    names = list(dict.fromkeys(arm.name for arm in plan.arms))
    assert [*found(leaky, text).values()] == [["t00"], ["t01"]]
    assert sorted(name for arms in found(leaky, text) for name in arms) == sorted(names)
    assert found(leaky, text, arm=names[0]) == {(names[0],): ["t00"]}


def test_rows_are_read_once_for_all_arms_repeats_and_entries(leaky, run_text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    leaky.code("plugins", COUNTING)
    entries = "[{name: a, path: tasks.jsonl, max_tokens: 4}, {name: b, path: tasks.jsonl, limit: 3, limit_by: first}]"
    metadata = METADATA.partition("  benchmark:")[0].replace("val.", "a.") + f"  benchmark: {entries}\n"
    text = "n_repeats: 3\nmatrix:\n  axes:\n    algorithm.params.steps: [2, 3]\nbase_run:" + run_text(
        ("[{kind: jsonl_to_chat}]", "[{kind: counting}, {kind: jsonl_to_chat}]")
    )
    check = check_data(load_experiment(leaky.config(text, metadata=metadata)))
    assert Path("read.txt").read_text(encoding="utf-8").count("row") == 8
    (dataset,) = check.datasets
    assert (dataset.repeats, len(dataset.arms)) == ((0, 1, 2), 2)
    assert [(entry.benchmark, entry.tasks, len(entry.flagged)) for entry in dataset.benchmarks] == [
        ("a", 12, 1),
        ("b", 3, 1),
    ]


def test_repeats_that_draw_other_rows_are_other_data(leaky, run_text):
    drawn = ("[{kind: jsonl_to_chat}]", "[{kind: sample, params: {n: 4}}, {kind: jsonl_to_chat}]")
    check = check_data(load_experiment(leaky.config("n_repeats: 2\nrun:" + run_text(drawn))))
    assert [(dataset.rows, dataset.repeats) for dataset in check.datasets] == [(4, (0,)), (4, (1,))]


def test_rows_are_compared_as_transforms_left_them(leaky, run_text):
    without = "[{kind: filter, params: {conditions: [{column: prompt, op: '!=', value: say h}]}}, {kind: jsonl_to_chat}]"
    assert [*found(leaky, "run:" + run_text(("[{kind: jsonl_to_chat}]", without))).values()] == [[]]


def test_a_benchmark_that_is_named_is_found_in_the_project_and_nothing_is_written(leaky, run_text):
    folder = leaky.root / "data" / "benchmark" / "val"
    folder.mkdir(parents=True)
    (leaky.root / "tasks.jsonl").rename(folder / "tasks.jsonl")
    plan = load_experiment(
        leaky.config("run:" + run_text(), metadata=METADATA.replace("    path: tasks.jsonl\n", "")),
        records=False,
    )
    before = sorted(leaky.root.rglob("*"))
    assert check_data(plan).flagged == 1
    assert sorted(leaky.root.rglob("*")) == before


def test_progress_is_told_with_the_name_of_the_data(leaky, run_text):
    leaky.write("train.jsonl", [{"prompt": f"q{n}", "completion": "a"} for n in range(2_100)])
    told: list[tuple[str, int]] = []
    plan = load_experiment(leaky.config("run:" + run_text()))
    check_data(plan, advanced=lambda source, rows: told.append((source, rows)))
    assert told == [("train.jsonl", 1_000), ("train.jsonl", 2_000)]


def test_an_arm_that_is_not_there_and_an_experiment_without_a_benchmark_are_refused(leaky, run_text):
    text = "run:" + run_text()
    with pytest.raises(ConfigError, match=r"no arm is called 'nobody'.*\n?.*arms: run"):
        found(leaky, text, arm="nobody")
    plan = load_experiment(leaky.config(text, metadata=""))
    with pytest.raises(ConfigError, match=r"\$\.metadata: there is no benchmark"):
        check_data(plan)


def test_a_row_that_can_not_be_read_is_an_error_with_its_line(leaky, run_text):
    path = leaky.root / "train.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    plan = load_experiment(leaky.config("run:" + run_text()))
    with pytest.raises(DataError, match=r"train\.jsonl:9"):
        check_data(plan)
