"""What is said of a search before anything is spent."""

from __future__ import annotations

import json

import pytest
from small_project import METADATA

from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.estimate.search import planned_search
from evsys_runtime.experiment.preflight.preview import preview_rows
from evsys_runtime.experiment.result_schemas import validate_result

SEARCH = """
search: {kind: asha, params: {arms: 9, min_steps: 2}}
confirm: {seeds: 1}
base_run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
matrix:
  axes:
    algorithm.params.learning_rate: {low: 1e-3, high: 0.2, log: true}
    algorithm.params.steps: [4, 6]
"""


@pytest.fixture
def plan(project):
    def made(*overrides):
        path = project.config(SEARCH, metadata=f"{METADATA}    run_every: 2\n")
        return load_experiment(path, overrides=overrides)

    return made


def planned(plan):
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        return plan_experiment(plan, index)


def test_each_arm_counts_with_the_steps_of_the_longest(plan):
    found = planned(plan())

    (each,) = found.arms
    assert (each.arm, each.runs, each.steps, each.rows) == ("each arm of asha", 9, 6, 8)
    assert (found.runs, found.steps) == (9, 54)
    assert (found.search.kind, found.search.arms, found.search.stops) == ("asha", 9, True)
    assert (found.design.comparisons, found.confirm.runs, found.neighbours) == (9, 1, ())
    assert [scoring.scorings for scoring in found.scorings] == [9 * 3 + 1]


def test_repeats_and_the_budget_count(plan):
    assert planned(plan("n_repeats=2")).runs == 18
    assert planned_search(plan("budget={arms: 4}")).arms == 4
    assert planned_search(plan("budget={arms: 4}", "n_repeats=2")).arms == 2


def test_the_document_is_as_published(plan):
    validate_result(json.loads(json.dumps(result_tree(planned(plan())))), "plan")


def test_rows_are_shown_as_the_arms_will_see_them(plan):
    assert preview_rows(plan(), limit=2).rows


def test_a_search_that_can_stop_no_arm_is_warned_of(plan):
    said = "search 'asha' will stop no arm: 'val' is scored every 6 steps of a training, and no arm takes more than 6"
    entry = "metadata.benchmark={name: val, path: tasks.jsonl, max_tokens: 4, run_every: %d}"
    assert said in plan(entry % 6).warnings
    assert not any("stop no arm" in one for one in plan(entry % 5).warnings)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["budget={arms: 1}"],
            "budget.arms is 1, and one arm of the search takes 2 runs with its confirmation",
        ),
        (["budget={arms: 2}"], None),
        (["budget={arms: 3}", "n_repeats=2", "confirm={seeds: 2}"], "takes 4 runs with its confirmation"),
        (["budget={steps: 7}"], "the shortest arm of the search takes 8 steps with its confirmation"),
        (["budget={steps: 7}", "confirm=null"], None),
        (["budget={steps: 3}"], "budget.steps is 3, which doesn't pay for one arm"),
    ],
)
def test_a_budget_that_pays_for_no_arm_is_warned_of(plan, overrides, said):
    told = [one for one in plan(*overrides).warnings if "budget" in one]
    assert told == [] if said is None else said in told[0]


def test_where_reruns_are_the_same_arms_run_in_turn_unless_the_file_says_otherwise(plan):
    assert plan().concurrent_arms == 1
    assert plan("max_concurrent_arms=3").concurrent_arms == 3
    assert plan("deterministic=false").concurrent_arms == 4
