"""`evsys compare`: what differs between two experiments on record, and what can't be compared."""

import json

import jsonschema
import numpy as np
import pytest

from evsys import current_registry
from evsys.errors import ConfigError
from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.compare import NOTHING_IN_COMMON, Subject, compare
from evsys_runtime.experiment.result_schemas import result_schema, validate_result
from evsys_stats.binary_pairs import mcnemar

CONFIG = """version: 1
name: trial
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward, pass@1]}
runs:
  - name: a
    data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
    model: {name: evsys/tiny}
    algorithm: {kind: sft, params: {learning_rate: 0.5, steps: 6, batch_size: 4}}
    backend: {kind: mock}
  - name: b
    data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
    model: {name: evsys/tiny}
    algorithm: {kind: sft, params: {learning_rate: 0.0, steps: 2, batch_size: 4}}
    backend: {kind: mock}
"""


@pytest.fixture
def project(tmp_path):
    rows = [{"prompt": "say a", "completion": "a"} for _ in range(8)]
    write(tmp_path / "train.jsonl", rows)
    tasks(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def tasks(project, expected="a"):
    verifier = {"name": "exact_match", "expected": expected}
    write(
        project / "tasks.jsonl",
        [
            {"task_id": f"t{i:02d}", "instruction": f"say a, take {i}", "verifier": verifier}
            for i in range(16)
        ],
    )


def ran(project, *overrides):
    return Experiment.from_yaml(project / "config.yaml", overrides=overrides, quiet=True).run()


def compared(project, one, other):
    with Index(project / ".evsys" / "experiments") as index:
        index.refresh()
        sides = [
            Subject(index=index, experiment_id=name.partition("/")[0], part=name.partition("/")[2] or None)
            for name in (one, other)
        ]
        return compare(*sides, current_registry())


def test_experiments_are_compared_arm_by_arm_with_what_differs_in_their_configs(project):
    one, other = ran(project), ran(project, "runs[0].algorithm.params.steps=3", "base_seed=4")
    found = compared(project, one.experiment_id, other.experiment_id)
    changed = {arms.one: {(d.path, d.one, d.other) for d in arms.differences} for arms in found.arms}
    assert changed == {
        "a": {("algorithm.params.steps", "6", "3"), ("base_seed", "0", "4")},
        "b": {("base_seed", "0", "4")},
    }
    assert [(row.arms, row.metric) for row in found.metrics] == [
        (arm, metric) for arm in ("a", "b") for metric in ("mean_reward", "pass@1")
    ]
    assert (found.one.steps, found.other.steps) == (8, 5)
    assert found.one.trained_tokens == one.usage.trained_tokens
    assert found.one.cost_usd == 0.0


def test_two_runs_of_one_experiment_are_paired_by_task(project):
    result = ran(project)
    run_a, run_b = (arm.run_id for arm in result.arms)
    found = compared(project, f"{result.experiment_id}/{run_b}", f"{result.experiment_id}/{run_a}")
    row = found.metrics[0]
    before, after = (
        np.array([rewards[0] for _, rewards in sorted(arm.evaluations[-1].task_rewards.items())])
        for arm in (result.arms[1], result.arms[0])
    )
    assert (row.one, row.other) == (before.mean(), after.mean())
    assert row.effect == pytest.approx(after.mean() - before.mean())
    assert row.p_value == mcnemar(int((after > before).sum()), int((after < before).sum()))
    assert row.low <= row.effect <= row.high
    mirrored = compared(
        project, f"{result.experiment_id}/{run_a}", f"{result.experiment_id}/{run_b}"
    ).metrics[0]
    assert (mirrored.effect, mirrored.p_value) == (-row.effect, row.p_value)


def test_two_arms_of_one_experiment_are_compared_with_all_their_repeats(project):
    result = ran(project, "n_repeats=2")
    one, other = (f"{result.experiment_id}/{arm}" for arm in "ab")
    found = compared(project, one, other)
    assert [(arms.one, arms.other) for arms in found.arms] == [("a", "b")]
    assert (found.one.name, found.one.run_id, found.other.name) == (one, None, other)
    assert (found.one.steps, found.other.steps) == (12, 4)
    assert found.one.seconds == sum(arm.seconds for arm in result.arms if arm.arm == "a")
    by_id = compared(project, *(f"{result.experiment_id}/{arm}-s0" for arm in "ab"))
    assert (by_id.one.steps, by_id.other.steps) == (6, 2)


def test_an_experiment_beside_itself_differs_in_nothing(project):
    result = ran(project)
    found = compared(project, result.experiment_id, result.experiment_id)
    assert not any(arms.differences for arms in found.arms)
    assert {row.reason for row in found.metrics} == {None}
    assert {row.effect for row in found.metrics} == {0.0}
    assert {row.p_value for row in found.metrics} == {1.0}


def test_other_tasks_are_refused_and_said_to_be_others(project):
    one = ran(project)
    tasks(project, expected="b")
    other = ran(project)
    found = compared(project, one.experiment_id, other.experiment_id)
    assert {row.reason for row in found.metrics} == {
        "can't be compared: its tasks aren't the same on both sides"
    }
    assert {(row.one, row.other, row.effect) for row in found.metrics} == {(None, None, None)}
    assert NOTHING_IN_COMMON in found.warnings
    assert {d.path for d in found.arms[0].differences} == {"benchmark.val.tasks"}


def test_few_tasks_in_common_and_metrics_that_are_not_there_have_a_reason(project):
    write(
        project / "tasks.jsonl",
        [
            {
                "task_id": f"t{i}",
                "instruction": f"say a, take {i}",
                "verifier": {"name": "exact_match", "expected": "a"},
            }
            for i in range(4)
        ],
    )
    text = CONFIG.replace("tasks.jsonl,", "tasks.jsonl, split: test,").replace(
        "  success_metric: val.mean_reward\n", ""
    )
    (project / "config.yaml").write_text(text, encoding="utf-8")
    result = ran(project)
    found = compared(project, result.experiment_id, result.experiment_id)
    assert all("4 tasks were scored on both sides" in row.reason for row in found.metrics)
    assert all(row.effect is None for row in found.metrics)


def test_arms_without_a_name_in_common_are_refused_and_named(project):
    one = ran(project)
    text = CONFIG.replace("name: a\n", "name: c\n").replace("name: b\n", "name: d\n")
    (project / "config.yaml").write_text(text, encoding="utf-8")
    other = ran(project)
    with pytest.raises(ConfigError, match="has a, b; .* has c, d"):
        compared(project, one.experiment_id, other.experiment_id)
    pair = compared(project, f"{one.experiment_id}/a-s0", f"{other.experiment_id}/c-s0")
    assert [(arms.one, arms.other) for arms in pair.arms] == [("a", "c")]
    assert pair.metrics[0].effect == 0.0


def test_an_arm_of_one_side_alone_is_named(project):
    one = ran(project)
    (project / "config.yaml").write_text(CONFIG.partition("  - name: b")[0], encoding="utf-8")
    other = ran(project)
    found = compared(project, one.experiment_id, other.experiment_id)
    assert ([arms.one for arms in found.arms], found.only_one, found.only_other) == (["a"], ("b",), ())


def test_the_document_is_as_published(project):
    result = ran(project)
    tree = json.loads(json.dumps(result_tree(compared(project, result.experiment_id, result.experiment_id))))
    jsonschema.validate(tree, result_schema("compare"))
    validate_result(tree, "compare")
