"""What is said of a search before anything is spent."""

from __future__ import annotations

import json

import pytest
from small_project import METADATA

from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.checks.preview import preview_rows
from evsys_runtime.experiment.planning.plan import plan_experiment
from evsys_runtime.experiment.planning.searched import planned_search
from evsys_runtime.record.index import Index
from evsys_runtime.record.result_schemas import result_tree, validate_result

SEARCH = """
search: {kind: asha, params: {arms: 9, min_steps: 2}}
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
