"""The deviation between runs is looked up on record, of experiments that may be relied on, and kept in the conclusion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evsys_record import marks
from evsys_record.retraction import retract
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.experiment.result_schemas import validate_result

METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 2}
"""
RUN = """run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.05, steps: STEPS, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def learns(project):
    project.write("train.jsonl", [{"prompt": "say a", "completion": "x"}] * 12)
    project.tasks([(f"t{i:02d}", f"say a, take {i}", "x") for i in range(12)])
    return project


@pytest.fixture
def trusting(monkeypatch):
    """The mock's records stand for those of a real backend."""
    monkeypatch.setattr(marks, "DISQUALIFYING", marks.DISQUALIFYING - {"simulated"})


def concluded(project, repeats, steps=6):
    text = RUN.replace("STEPS", str(steps))
    return project.experiment(text, metadata=METADATA, extra=f"n_repeats: {repeats}\n").run()


def test_similar_runs_on_record_tell_the_deviation_until_they_are_retracted(learns, trusting):
    assert concluded(learns, 1).conclusion.run_deviation is None
    before = concluded(learns, 4, steps=8)
    result = concluded(learns, 1)
    known = result.conclusion.run_deviation
    (recipe,) = known.recipes
    assert (known.runs, known.experiments) == (4, (before.experiment_id,))
    scores = {arm.run_id: arm.evaluations[-1].metrics["mean_reward"].value for arm in before.arms}
    assert recipe.scores == pytest.approx(scores)
    (claim,) = [c for c in result.conclusion.claims if c.subject == "recipe"]
    assert claim.deviation.experiments == (before.experiment_id,)
    tree = json.loads((Path(result.directory) / "conclusion.json").read_text(encoding="utf-8"))
    validate_result(tree, "conclusion")
    assert tree["run_deviation"]["recipes"][0]["scores"] == pytest.approx(scores)
    assert audit_experiment(Path(result.directory)).passed

    retract(Path(before.directory), "the rows were wrong")
    assert concluded(learns, 1).conclusion.run_deviation is None


def test_simulated_runs_tell_nothing_about_real_ones(learns):
    concluded(learns, 4)
    conclusion = concluded(learns, 1).conclusion
    assert (conclusion.run_deviation, conclusion.subject) == (None, "checkpoint")


def test_runs_on_other_tasks_tell_nothing(learns, trusting):
    concluded(learns, 4)
    learns.tasks([(f"t{i:02d}", f"say b, take {i}", "x") for i in range(12)])
    assert concluded(learns, 1).conclusion.run_deviation is None


@pytest.mark.parametrize("baseline", ["base_model", "learning_rate-0.01"])
def test_an_audit_recomputes_a_claim_about_a_recipe_from_the_scores_in_the_conclusion(
    learns, trusting, baseline
):
    arms = "matrix:\n  axes:\n    algorithm.params.learning_rate: [0.01, 0.1]\nbase_run:" + (
        RUN.partition(":")[2].replace("learning_rate: 0.05, steps: STEPS", "steps: 6")
    )
    metadata = f"{METADATA}  baseline: {baseline}\n"
    result = None
    for repeats in (3, 2):
        result = learns.experiment(arms, metadata=metadata, extra=f"n_repeats: {repeats}\n").run()
    folder = Path(result.directory)
    assert {c.claim for c in result.conclusion.comparisons} == {"recipe"}
    assert audit_experiment(folder).passed
    path = folder / "conclusion.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    recipe = tree["run_deviation"]["recipes"][0]
    recipe["scores"] = {run: 0.1 * i for i, run in enumerate(recipe["scores"])}
    path.write_text(json.dumps(tree), encoding="utf-8")
    found = {
        f"{check.about}: {check.name}"
        for check in audit_experiment(folder).checks
        if check.state == "differs"
    }
    assert "run-to-run deviation: standard_deviation" in found
