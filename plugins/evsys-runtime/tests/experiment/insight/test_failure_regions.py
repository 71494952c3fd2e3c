"""Warnings of arms that lie where others failed and none completed."""

import json
from pathlib import Path

import pytest
from past_lab import Lab

from evsys.types import Failure
from evsys.types.search import SearchAxis
from evsys_record.index import Index
from evsys_record.jsonl import read_jsonl
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.insight.failure_regions import FailureRegions, failure_warnings
from evsys_runtime.experiment.insight.results import Condition, Region
from evsys_runtime.experiment.insight.search_spaces import WHOLE, SearchSpace
from evsys_runtime.experiment.state.resolved_tree import resolved_runs

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

SEARCH = """search: {kind: random, params: {arms: 4}}
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4}
"""
TASK = """{{"task_id": "t{}", "instruction": "say a", "verifier": {{"name": "exact_match", "expected": "a"}}}}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"prompt": "say a", "completion": "a"}\n' * 4, encoding="utf-8")
    return tmp_path


def plan_of(project, rates):
    return load(project, CONFIG % rates)


def load(project, text):
    path = project / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path, records=False)


def search_of(project, axes, *, kind="sft"):
    """The plan of a search over these axes."""
    (project / "tasks.jsonl").write_text("".join(map(TASK.format, range(12))), encoding="utf-8")
    text = CONFIG.replace("{algorithm.params.learning_rate: %s}", axes).replace("kind: sft", f"kind: {kind}")
    return load(project, text + SEARCH)


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
        return failure_warnings(plan, index)


def test_an_arm_inside_of_a_known_bad_region_is_warned_of_by_name_region_and_evidence(project, lab):
    (warning,) = warned(plan_of(project, "[0.001, 0.3]"), lab)
    (experiment,) = (path.name for path in lab.experiments.iterdir() if path.is_dir())
    assert warning == (
        "arm learning_rate-0.3 lies where 3 configs failed on record and none completed: "
        'algorithm.params.learning_rate >= 0.1 and backend.kind = "evsys-backend-mock/mock" '
        f"(failed algorithm/AlgorithmError: the loss isn't finite; {experiment})"
    )


def test_arms_outside_are_not_warned_of(project, lab):
    assert warned(plan_of(project, "[0.001, 0.05]"), lab) == ()


def test_a_single_completed_arm_inside_ends_the_warning(project, lab):
    swept(lab, project, [0.3], [])
    assert warned(plan_of(project, "[0.3]"), lab) == ()


def test_failures_on_one_backend_say_nothing_about_another(project, lab):
    plan = load(project, (CONFIG % "[0.3]").replace("kind: mock", "kind: local"))
    assert warned(plan, lab) == ()


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


SEEN = (
    "where 3 configs failed on record and none completed: algorithm.params.learning_rate >= 0.1 "
    'and backend.kind = "evsys-backend-mock/mock" '
    "(failed algorithm/AlgorithmError: the loss isn't finite; "
)
RATE = "algorithm.params.learning_rate"


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ("{%s: {low: 0.2, high: 0.8}}", "every arm that the search can propose lies"),
        ("{%s: {low: 0.1, high: 0.8, log: true}}", "every arm that the search can propose lies"),
        ("{%s: [0.1, 0.5]}", "every arm that the search can propose lies"),
        (
            "{%s: {low: 1e-3, high: 1.0, log: true}}",
            "the search can propose arms with %s from 0.1 to 1 (33%% of 0.001 to 1),",
        ),
        (
            "{%s: {low: 0.0, high: 0.5}}",
            "the search can propose arms with %s from 0.1 to 0.5 (80%% of 0 to 0.5),",
        ),
        ("{%s: {low: 0.01, high: 0.1}}", "the search can propose arms with %s = 0.1,"),
        ("{%s: [0.001, 0.3, 0.5]}", "the search can propose arms with %s = 0.3, 0.5,"),
        (
            "{%s: {low: 0.2, high: 0.5, when: {algorithm.params.batch_size: 2}}, algorithm.params.batch_size: [2, 4]}",
            "the search can propose arms with %s wherever it is drawn,",
        ),
        ("{%s: {low: 1e-4, high: 0.05}}", None),
        ("{%s: [0.001, 0.05]}", None),
        ("{algorithm.params.batch_size: [2, 4]}", None),
    ],
)
def test_what_a_search_chooses_from_is_warned_of_as_far_as_it_lies_inside(project, lab, axes, says):
    plan = search_of(project, axes.replace("%s", RATE))
    warnings = warned(plan, lab)
    if says is None:
        assert warnings == ()
        return
    (warning,) = warnings
    (experiment,) = (path.name for path in lab.experiments.iterdir() if path.is_dir())
    assert warning == f"{says.replace('%s', RATE).replace('%%', '%')} {SEEN}{experiment})"


def test_a_space_whose_every_arm_is_of_another_algorithm_is_not_warned_of(project, lab):
    (run,) = resolved_runs(plan_of(project, "[0.01]")).values()
    other = json.loads(json.dumps(run))
    other["algorithm"]["kind"] = "evsys-algo-dpo/dpo"
    record = lab.begin({"dpo": other}, 1)
    lab.result(record, "dpo", 0)
    lab.end(record, "REFUTED", [])
    axes = "{algorithm.params.learning_rate: {low: 0.2, high: 0.8}}"
    (warning,) = warned(search_of(project, axes), lab)
    assert "algorithm.kind = " in warning
    assert warned(search_of(project, axes, kind="dpo"), lab) == ()


@pytest.mark.parametrize(
    ("condition", "axis", "part"),
    [
        ((">=", "3"), {"low": 1, "high": 4, "type": "int"}, "p from 3 to 4 (50% of 1 to 4)"),
        (("<=", "2.5"), {"low": 1, "high": 4, "type": "int"}, "p from 1 to 2 (50% of 1 to 4)"),
        (("=", "3"), {"low": 1, "high": 4, "type": "int"}, "p = 3"),
        # 8 to below 17 of 1 to below 17, by ratio
        (
            (">=", "8"),
            {"low": 1, "high": 16, "type": "int", "log": True},
            "p from 8 to 16 (27% of 1 to 16)",
        ),
        (
            (">=", "1500000"),
            {"low": 1, "high": 2000000, "type": "int"},
            "p from 1500000 to 2000000 (25% of 1 to 2000000)",
        ),
        (("=", "0.3"), {"low": 0.1, "high": 0.4}, None),
        (("=", "0.4"), {"low": 0.1, "high": 0.4}, "p = 0.4"),
        (("=", '"auto"'), {"low": 0.1, "high": 0.4}, None),
        (
            ("<=", "0.01"),
            {"low": 1e-4, "high": 1.0, "log": True},
            "p from 0.0001 to 0.01 (50% of 0.0001 to 1)",
        ),
    ],
)
def test_the_part_of_a_range_is_told_with_its_share(condition, axis, part):
    space = SearchSpace(axes=[SearchAxis(path="p", **axis)], probes=[])
    assert space.overlap(region(condition)) == part


def test_of_a_region_with_two_ends_what_lies_between_them_is_told():
    space = SearchSpace(axes=[SearchAxis(path="p", low=0.0, high=1.0)], probes=[])
    assert space.overlap(region((">=", "0.2"), ("<=", "0.6"))) == "p from 0.2 to 0.6 (40% of 0 to 1)"
    assert space.overlap(region((">=", "1.2"), ("<=", "1.6"))) is None
    inside = SearchSpace(axes=[SearchAxis(path="p", low=0.3, high=0.4)], probes=[])
    assert inside.overlap(region((">=", "0.2"), ("<=", "0.6"))) == WHOLE


def region(*conditions):
    return Region(
        conditions=tuple(
            Condition(path="p", relation=relation, value=value) for relation, value in conditions
        ),
        failed=3,
        completed_inside=0,
        completed_outside=9,
        chance=0.01,
        known_bad=True,
    )


def test_an_arm_that_a_search_proposes_inside_of_a_known_bad_region_has_that_on_record_and_is_run(
    project, lab
):
    plan = search_of(project, "{algorithm.params.learning_rate: [0.001, 0.3]}")
    path = project / "config.yaml"
    text = path.read_text(encoding="utf-8").replace("random, params: {arms: 4}", "grid")
    path.write_text(text.replace("steps: 100", "steps: 2") + "confirm: null\n", encoding="utf-8")
    result = Experiment.from_yaml(path, quiet=True).run()
    made = [line["proposal"] for line in read_jsonl(Path(result.directory) / "proposals.jsonl")]
    assert {one["values"][RATE]: one.get("known_bad") for one in made} == {
        0.001: None,
        0.3: [f'{RATE} >= 0.1 and backend.kind = "evsys-backend-mock/mock"'],
    }
    assert {arm.status for arm in result.arms} == {"completed"}
    assert result.experiment_id not in str(made)
    assert warned(plan, lab) == ()


def test_what_an_experiment_finds_on_record_is_not_what_became_of_its_own_runs(project, lab):
    (experiment,) = (path.name for path in lab.experiments.iterdir() if path.is_dir())
    swept(lab, project, [0.001], [])
    assert FailureRegions.from_earlier(lab.experiments, "another", print).classes
    assert not FailureRegions.from_earlier(lab.experiments, experiment, print).classes
