"""`evsys history --near`: which experiments on record are nearest to a config, and what differs."""

import json
import math
import random

import pytest

from evsys.types import Comparison, Conclusion, ExperimentResult
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.history import Question
from evsys_record.index import Index
from evsys_record.leaves import short_leaves
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.similar_configs import similar_experiments
from evsys_runtime.experiment.open_session import bound_benchmarks
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.state.resolved_tree import planned_leaves, resolved_runs, resolved_tree

CONFIG = """version: 1
name: trial
metadata:
  success_metric: val.mean_reward
  minimum_effect: 0.2
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward]}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 100, batch_size: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def plan(tmp_path):
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(12)
    ]
    rows = [{"prompt": "say a", "completion": "a"}] * 8
    for name, lines in (("train.jsonl", rows), ("other.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return load_experiment(path, records=False)


@pytest.fixture
def experiments(tmp_path):
    return tmp_path / ".evsys" / "experiments"


def changed(run, values):
    tree = json.loads(json.dumps(run))
    for path, value in values.items():
        *parts, last = path.split(".")
        place = tree
        for part in parts:
            place = place[part]
        place[last] = value
    return tree


def put(experiments, number, arms, **facts):
    """An experiment with these arms on record, made in the second `number`."""
    named = [{"run_id": f"{arm}-s0", "arm": arm, "repeat": 0} for arm in arms]
    record = ExperimentRecord.create(
        experiments,
        "past",
        b"version: 1\n",
        facts={"arms": named, "success_metric": "val.mean_reward", "tags": [], **facts},
        moment=1_767_270_896.0 + number,
    )
    record.write_resolved([{**each, "run": run} for each, run in zip(named, arms.values(), strict=True)])
    compared = tuple(
        Comparison(arm=arm, outcome="loss", effect=-0.5, low=-0.7, high=-0.3, before=0.5, after=0.0)
        for arm in arms
    )
    conclusion = Conclusion(verdict="REFUTED", reason="no", best_arm=None, comparisons=compared)
    record.write_result(
        ExperimentResult(
            experiment_id=record.experiment_id,
            name="past",
            status="completed",
            directory=str(record.directory),
            conclusion=conclusion,
        )
    )
    return record.experiment_id


def asked(plan, experiments, **question):
    with Index(experiments) as index:
        index.refresh()
        return similar_experiments(planned_leaves(plan), index, Question(**question))


def test_the_nearest_comes_first_with_the_values_that_differ(plan, experiments):
    (run,) = resolved_runs(plan).values()
    far = put(experiments, 0, {"a": changed(run, {"algorithm.params.learning_rate": 10.0})})
    close = put(experiments, 1, {"a": changed(run, {"algorithm.params.learning_rate": 0.011})})
    other = put(
        experiments, 2, {"a": changed(run, {"algorithm.params.batch_size": 8, "algorithm.params.steps": 2})}
    )
    same = put(experiments, 3, {"x": changed(run, {"model.name": "org/else"}), "y": run})
    found = asked(plan, experiments)
    assert [each.experiment_id for each in found.near] == [same, close, far, other]
    assert [each.arm for each in found.near] == ["y", "a", "a", "a"]
    assert (found.near[0].distance, found.near[0].differences) == (0.0, ())
    assert [(d.path, d.one, d.other) for d in found.near[1].differences] == [
        ("algorithm.params.learning_rate", "0.01", "0.011")
    ]
    assert (found.near[1].outcome, found.near[1].effect, found.near[1].verdict) == ("loss", -0.5, "REFUTED")
    assert found.total == 4


def test_what_trains_another_model_or_on_other_data_comes_after_all_that_is_comparable(plan, experiments):
    (run,) = resolved_runs(plan).values()
    other_data = put(experiments, 0, {"a": changed(run, {"data.path": "other.jsonl"})})
    different = put(
        experiments,
        1,
        {
            "a": changed(
                run, {"algorithm.params.steps": 1, "algorithm.params.batch_size": 99, "backend.kind": "x"}
            )
        },
    )
    foreign = {"model": {"name": "org/else"}, "algorithm": {"kind": "p/rl"}, "data": {"path": "else.jsonl"}}
    put(experiments, 2, {"a": foreign})
    found = asked(plan, experiments)
    assert [each.experiment_id for each in found.near] == [different, other_data]
    assert [each.same for each in found.near] == [("model", "data", "algorithm"), ("model", "algorithm")]


def test_filters_and_the_limit_hold_here_too(plan, experiments):
    (run,) = resolved_runs(plan).values()
    ids = [put(experiments, number, {"a": run}, tags=[f"t{number % 2}"]) for number in range(4)]
    found = asked(plan, experiments, tags=("t1",), limit=1)
    assert ([each.experiment_id for each in found.near], found.total) == ([ids[3]], 2)


def test_the_distance_is_what_an_independent_count_gives(plan, experiments):
    (run,) = resolved_runs(plan).values()
    draw = random.Random(7)
    own = short_leaves(run)
    expected = {}
    for number in range(40):
        values = {
            "algorithm.params.learning_rate": draw.choice([0.01, 0.1, 1e-5, 0, None]),
            "algorithm.params.steps": draw.choice([100, 50, 3]),
            "algorithm.params.schedule": draw.choice(["constant", "cosine"]),
            "model.renderer": draw.choice([None, "plain"]),
        }
        tree = changed(run, values)
        other = short_leaves(tree)
        total = 0.0
        for path in own.keys() | other.keys():
            one, two = own.get(path), other.get(path)
            if one == two:
                continue
            try:
                ratio = abs(math.log(float(one)) - math.log(float(two)))
                total += ratio / (1 + ratio)
            except (TypeError, ValueError):
                total += 1.0
        expected[put(experiments, number, {"a": tree})] = total
    found = asked(plan, experiments)
    assert {each.experiment_id: each.distance for each in found.near} == pytest.approx(expected, abs=1e-4)
    assert [each.distance for each in found.near] == sorted(each.distance for each in found.near)


def test_equal_arms_are_kept_once_and_known_as_equal(plan, experiments):
    (run,) = resolved_runs(plan).values()
    for number in range(3):
        put(experiments, number, {"a": {**run, "name": f"other-{number}"}})
    with Index(experiments) as index:
        index.refresh()
        assert len({numbers for _, _, numbers in ArmsOnRecord.from_index(index).arms}) == 1


def test_runs_are_resolved_as_the_record_has_them(plan):
    tree = resolved_tree(plan, bound_benchmarks(plan, Options()))
    assert resolved_runs(plan) == {arm["arm"]: arm["run"] for arm in tree["arms"]}


def test_rows_in_the_file_itself_are_one_value_however_many(plan):
    (run,) = resolved_runs(plan).values()
    with_rows = changed(run, {"data.rows": [{"prompt": str(n)} for n in range(1000)]})
    assert len(short_leaves(with_rows)) == len(short_leaves(run)) + 1
    assert short_leaves(with_rows)["data.rows"].startswith('"sha256:')


def test_nothing_on_record_is_an_empty_list(plan, experiments):
    assert asked(plan, experiments).near == ()
