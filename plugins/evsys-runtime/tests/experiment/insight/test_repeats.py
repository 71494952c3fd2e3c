"""Repeats of earlier experiments, as `evsys validate`, `plan` and `run` report them."""

import json

import pytest
from past_lab import Lab

from evsys.types import Failure
from evsys_record.index import Index
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.insight.repeats import repeats
from evsys_runtime.experiment.state.resolved_tree import resolved_runs

CONFIG = """version: 1
name: trial
matrix:
  axes: {algorithm.params.learning_rate: [0.01, 0.02]}
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 2, batch_size: 2}}
  backend: {kind: mock}
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4}
"""
TASK = """{{"task_id": "t{0}", "instruction": "letter {0}7 please", "verifier": {{"name": "exact_match", "expected": "a"}}}}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"prompt": "say a", "completion": "a"}\n' * 4, encoding="utf-8")
    (tmp_path / "tasks.jsonl").write_text("".join(map(TASK.format, range(12))), encoding="utf-8")
    return tmp_path


@pytest.fixture
def first(project):
    """The id of an experiment with this config."""
    return run(project, CONFIG).experiment_id


def run(project, text):
    return Experiment.from_yaml(written(project, text), quiet=True).run()


def written(project, text):
    path = project / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def warned(project, text):
    plan = load_experiment(written(project, text))
    with Index(project / ".evsys" / "experiments") as index:
        index.refresh()
        return repeats(plan, index)


def test_a_repeat_is_reported_with_its_verdict_and_seeds(project, first):
    (warning,) = warned(project, CONFIG.replace("name: trial", "name: another"))
    assert warning.startswith(f"it repeats {first} with the same seeds: CANDIDATE (simulated), effect ")
    assert warning.endswith(f"(evsys show {first})")
    (warning,) = warned(project, f"{CONFIG}base_seed: 7\n")
    assert warning.startswith(f"it repeats {first} with other seeds: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0.01, 0.02]", "[0.01, 0.03]"),
        ("[0.01, 0.02]", "[0.01]"),
        ("[0.01, 0.02]", "[0.01, 0.02, 0.03]"),
        ("steps: 2", "steps: 3"),
        ("success_metric: val.mean_reward", "success_metric: val.pass@1"),
        (
            "success_metric: val.mean_reward",
            "success_metric: val.mean_reward\n  claim: no_worse\n  margin: 0.1",
        ),
    ],
)
def test_another_experiment_is_no_repeat(project, first, old, new):
    assert warned(project, CONFIG.replace(old, new)) == ()


def test_a_declared_child_is_no_accidental_repeat(project, first):
    child = CONFIG.replace("metadata:", f"metadata:\n  parent_experiment_id: {first}")
    assert warned(project, child) == ()


def test_run_and_plan_report_it(project, first):
    plan = load_experiment(written(project, CONFIG))
    with Index(project / ".evsys" / "experiments") as index:
        index.refresh()
        planned = plan_experiment(plan, index).warnings
    for warnings in (planned, run(project, CONFIG).warnings):
        assert any(warning.startswith(f"it repeats {first} with the same seeds: ") for warning in warnings)


def test_a_dry_run_neither_repeats_nor_is_repeated(project):
    config = written(project, CONFIG)
    for _ in range(2):
        result = Experiment.from_yaml(config, quiet=True, dry=True).run()
        assert not any("it repeats" in warning for warning in result.warnings)
    assert warned(project, CONFIG) == ()


def test_a_config_that_failed_is_reported_until_it_completes(project):
    lab = Lab(project / ".evsys" / "experiments")
    arms = resolved_runs(load_experiment(written(project, CONFIG)))
    failed = json.loads(json.dumps(arms["learning_rate-0.02"]))
    failure = Failure(
        boundary="algorithm", message="the loss isn't finite\nat step 3", error_type="AlgorithmError"
    )
    ids = []
    for _ in range(2):
        record = lab.begin({"other": failed}, 1)
        lab.result(record, "other", 0, status="failed", failure=failure)
        lab.end(record, None, [], status="failed")
        ids.append(record.experiment_id)
        warnings = warned(project, CONFIG)
        times = "" if len(ids) == 1 else " in 2 experiments"
        (warning,) = warnings
        assert warning == (
            f"arm learning_rate-0.02: the same config failed{times} and never completed "
            f"({', '.join(reversed(ids))}; {ids[-1]} failed: the loss isn't finite)"
        )
    record = lab.begin({"other": failed}, 1)
    lab.result(record, "other", 0)
    lab.end(record, "INCONCLUSIVE", [])
    assert warned(project, CONFIG) == ()
