"""A search under a budget that is killed and taken up again: what it proposes depends on what its arms came to, and not on what
was made twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import METADATA, forgotten

from evsys_record.jsonl import read_jsonl
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.search import judged_scores

SPACE = """
base_run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 6, batch_size: 4, lora_rank: 4, save_every: 4}}
  backend: {kind: mock}
matrix:
  axes:
    algorithm.params.learning_rate: {low: 1e-3, high: 0.2, log: true}
    algorithm.params.lora_rank: [4, 8]
max_concurrent_arms: 1
confirm: null
callbacks: [{kind: cuts}]
"""
IN_LOOP = f"{METADATA}    run_every: 1\n"
CUTS = """
import json
from pathlib import Path
from evsys_sdk import register_callback

@register_callback("cuts")
class Cuts:
    def evsys_step_finished(self, ctx, step):
        plan = Path(__file__).parents[1] / "cuts.json"
        left = json.loads(plan.read_text(encoding="utf-8"))
        runs = sorted(path.stat().st_ctime_ns for path in ctx.run_dir.parent.iterdir())
        if left and [len(runs), step] == left[0]:
            plan.write_text(json.dumps(left[1:]), encoding="utf-8")
            raise KeyboardInterrupt
"""
SEARCHES = {
    "random": "{kind: random, params: {arms: 9}}",
    "tpe": "{kind: optuna, params: {arms: 9, startup: 1}}",
    "asha": "{kind: asha, params: {arms: 9, min_steps: 1, reduction_factor: 2}}",
}


@pytest.fixture(autouse=True)
def with_cuts(project):
    project.code("callbacks", CUTS)
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghabcdefgh")])


def searched(project, search, budget, cuts, space=SPACE):
    """An experiment that is cut off where `cuts` say: at the step of the n-th run. It is taken up until it ends."""
    (project.root / "cuts.json").write_text(json.dumps(cuts), encoding="utf-8")
    text = f"\nsearch: {search}{space}"
    experiment = project.experiment(text, metadata=IN_LOOP, extra=f"budget: {budget}\n")
    while True:
        try:
            return experiment.run()
        except KeyboardInterrupt:
            experiment = Experiment.resume(experiment.record.directory, quiet=True)


def proposals(result):
    return [line["proposal"] for line in read_jsonl(Path(result.directory) / "proposals.jsonl")]


def judged(result):
    lines = read_jsonl(Path(result.directory) / judged_scores.JUDGED, missing_ok=True)
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


def facts(result):
    return json.loads((Path(result.directory) / "experiment.json").read_text(encoding="utf-8"))


def outcomes(result):
    return [
        (arm.run_id, arm.run.steps, arm.evaluations[-1].metrics["mean_reward"].value) for arm in result.arms
    ]


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize(
    "cuts",
    [[[1, 1]], [[2, 3]], [[3, 1]], [[1, 3], [2, 1], [2, 3]]],
    ids=["first", "second", "third", "thrice"],
)
def test_steps_that_are_made_twice_change_no_choice(project, search, cuts):
    if search == SEARCHES["asha"]:
        cuts = [[run, min(step, 1)] for run, step in cuts]
    budget = "{steps: 26, arms: 3}"
    whole = searched(project, search, budget, [])
    cut = searched(project, search, budget, cuts)

    assert facts(cut)["budget"]["spent"]["steps"] > facts(whole)["budget"]["spent"]["steps"]
    assert len(whole.arms) == 3
    assert proposals(cut) == proposals(whole)
    assert judged(cut) == judged(whole)
    assert outcomes(cut) == outcomes(whole)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_what_the_limit_doesnt_pay_for_twice_is_proposed_and_started_once_it_is_raised(project, search):
    """Four arms of six steps are paid for once; after three steps were lost the last one isn't, and nothing is put in its place."""
    whole = searched(project, search, "{steps: 24}", [])
    count = len(whole.arms)
    assert facts(whole)["search"]["ended"] == "the budget pays for no further arm"
    lost = 1 if search == SEARCHES["asha"] else 3
    cut = searched(project, search, "{steps: 24}", [[2, lost]])

    assert proposals(cut) == proposals(whole)
    assert facts(cut)["budget"]["spent"]["steps"] <= 24
    assert [arm.status for arm in cut.arms] == ["completed"] * (count - 1) + ["budget_stopped"]
    assert cut.status == "budget_stopped"
    raised = Experiment.resume(cut.directory, overrides=[f"budget.steps={24 + lost}"], quiet=True).run()
    assert proposals(raised) == proposals(whole)
    assert judged(raised) == judged(whole)
    assert outcomes(raised) == outcomes(whole)
    assert facts(raised)["search"] == facts(whole)["search"]


def test_a_search_that_can_go_on_with_more_says_anew_why_it_ended(project):
    first = searched(project, SEARCHES["random"], "{steps: 12}", [[2, 3]])
    assert [arm.status for arm in first.arms] == ["completed", "budget_stopped"]
    assert facts(first)["search"]["proposed"] == 2
    again = Experiment.resume(first.directory, overrides=["budget={steps: 60, arms: 4}"], quiet=True).run()
    assert (len(again.arms), facts(again)["search"]["proposed"]) == (4, 4)


def test_no_winner_is_chosen_while_an_arm_waits_for_more_to_spend(project):
    space = (
        SPACE.replace("confirm: null", "confirm: {seeds: 1}")
        .replace("low: 1e-3", "low: 0.02")
        .replace("steps: 6", "steps: 18")
    )
    search = "{kind: random, params: {arms: 3}}"
    whole = forgotten(searched(project, search, "{steps: 72}", [], space))
    cut = searched(
        project, search, "{steps: 72}", [[3, 3], [3, 7], [3, 11]], space.replace(", save_every: 4", "")
    )
    assert [arm.status for arm in cut.arms] == ["completed", "completed", "budget_stopped"]
    raised = Experiment.resume(cut.directory, overrides=["budget.steps=100"], quiet=True).run()
    assert outcomes(raised) == outcomes(whole)
    assert raised.conclusion.confirmed == whole.conclusion.confirmed


def test_once_the_winner_is_confirmed_nothing_more_is_proposed(project):
    space = (
        SPACE.replace("confirm: null", "confirm: {seeds: 1}")
        .replace("low: 1e-3", "low: 0.02")
        .replace("steps: 6", "steps: 18")
    )
    whole = searched(project, "{kind: random, params: {arms: 9}}", "{steps: 72}", [], space)
    chosen = proposals(whole)
    forgotten(whole)
    cut = searched(project, "{kind: random, params: {arms: 9}}", "{steps: 80}", [[2, 3], [4, 5]], space)
    assert [arm.purpose for arm in whole.arms] == ["candidate"] * 3 + ["confirm"]
    assert proposals(cut) == chosen
    assert cut.conclusion.verdict == whole.conclusion.verdict
