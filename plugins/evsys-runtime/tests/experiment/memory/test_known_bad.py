"""Warnings of arms that lie where others failed and none completed."""

import json

import pytest
from past_lab import Lab

from evsys.types import Failure
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.memory.known_bad import known_bad
from evsys_runtime.experiment.planning.plan import plan_experiment
from evsys_runtime.experiment.resolved import resolved_runs
from evsys_runtime.record.index import Index

CONFIG = """version: 1
name: trial
matrix:
  axes: {algorithm.params.learning_rate: %s}
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 100, batch_size: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"prompt": "say a", "completion": "a"}\n', encoding="utf-8")
    return tmp_path


def plan_of(project, rates):
    path = project / "config.yaml"
    path.write_text(CONFIG % rates, encoding="utf-8")
    return load_experiment(path, records=False)


@pytest.fixture
def lab(project):
    """A sweep over learning rates in which those from 0.1 on collapsed."""
    lab = Lab(project / ".evsys" / "experiments")
    good = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2]
    swept(lab, project, good, [0.1, 0.2, 0.5])
    return lab


def swept(lab, project, good, bad):
    (run,) = resolved_runs(plan_of(project, "[0.01]")).values()
    arms = {}
    for rate in (*good, *bad):
        tree = json.loads(json.dumps(run))
        tree["algorithm"]["params"]["learning_rate"] = rate
        arms[f"lr-{rate:g}"] = tree
    record = lab.begin(arms, 1)
    failure = Failure(boundary="algorithm", message="the loss isn't finite", error_type="AlgorithmError")
    for rate in (*good, *bad):
        if rate in bad:
            lab.result(record, f"lr-{rate:g}", 0, status="failed", failure=failure)
        else:
            lab.result(record, f"lr-{rate:g}", 0)
    lab.end(record, "REFUTED", [], status="partial")
    return record.experiment_id


def warned(plan, lab):
    with Index(lab.experiments) as index:
        index.refresh()
        return known_bad(plan, index)


def test_an_arm_inside_of_a_known_bad_region_is_warned_of_by_name_region_and_evidence(project, lab):
    (warning,) = warned(plan_of(project, "[0.001, 0.3]"), lab)
    (experiment,) = (path.name for path in lab.experiments.iterdir() if path.is_dir())
    assert warning == (
        "arm learning_rate-0.3 lies where 3 configs failed on record and none completed: "
        "algorithm.params.learning_rate >= 0.1 "
        f"(failed algorithm/AlgorithmError: the loss isn't finite; {experiment})"
    )


def test_arms_outside_are_not_warned_of(project, lab):
    assert warned(plan_of(project, "[0.001, 0.05]"), lab) == ()


def test_a_single_completed_arm_inside_ends_the_warning(project, lab):
    swept(lab, project, [0.3], [])
    assert warned(plan_of(project, "[0.3]"), lab) == ()


def test_the_same_config_that_failed_in_two_experiments_is_warned_of(project):
    lab = Lab(project / ".evsys" / "experiments")
    ids = [swept(lab, project, [], [0.25]) for _ in range(2)]
    (warning,) = warned(plan_of(project, "[0.25, 0.01]"), lab)
    assert warning == (
        "arm learning_rate-0.25: the same config failed in 2 experiments and never completed "
        f"({ids[1]}, {ids[0]})"
    )
    swept(lab, project, [0.25], [])
    assert warned(plan_of(project, "[0.25]"), lab) == ()


def test_a_plan_has_the_warning_too(project, lab):
    plan = plan_of(project, "[0.3]")
    with Index(lab.experiments) as index:
        index.refresh()
        assert any("lies where 3 configs failed" in each for each in plan_experiment(plan, index).warnings)


def test_without_failures_on_record_there_is_nothing_to_say(project):
    lab = Lab(project / ".evsys" / "experiments")
    assert warned(plan_of(project, "[0.3]"), lab) == ()
    swept(lab, project, [0.3], [])
    assert warned(plan_of(project, "[0.3]"), lab) == ()
