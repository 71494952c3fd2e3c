"""Arms in stages whose winner is tried once more, and whose baseline is repeated."""

from __future__ import annotations

import pytest
from small_project import METADATA, forgotten

from evsys_record.index import Index
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment

STAGES = """
stages:
- name: one
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  algorithm: {kind: sft, params: {steps: 8, batch_size: 4, learning_rate: 0.05, lora_rank: 4}}
- name: two
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  algorithm: {kind: sft, params: {steps: 16, batch_size: 4, learning_rate: 0.05, lora_rank: 4, save_every: 4}}
base_run:
  model: {name: evsys/tiny}
  backend: {kind: mock}
matrix:
  axes: {"stages[0].algorithm.params.learning_rate": [0.001, 0.05]}
max_concurrent_arms: 1
"""
AGAINST_AN_ARM = METADATA.replace("  hypothesis", "  baseline: learning_rate-0.001\n  hypothesis")
CUTS = """
from pathlib import Path
from evsys_sdk import register_callback

@register_callback("cuts")
class Cuts:
    def evsys_step_finished(self, ctx, step):
        mark = Path(__file__).parents[1] / "cut"
        if "-s1.2-two" in ctx.run_dir.name and step == 6 and not mark.exists():
            mark.touch()
            raise KeyboardInterrupt
"""


@pytest.fixture(autouse=True)
def more_tasks(project):
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghabcdefgh")])


def fresh(result):
    return [
        (arm.run_id, arm.run.steps, arm.evaluations[-1].metrics["mean_reward"].value)
        for arm in result.arms
        if arm.purpose == "confirm"
    ]


def test_the_best_of_several_arms_in_stages_is_trained_anew_stage_by_stage_and_its_last_one_decides(project):
    result = project.experiment(STAGES.replace("0.02", "0.05"), extra="confirm: {seeds: 2}\n").run()
    winner = result.conclusion.confirmed.comparison.arm
    assert [run_id for run_id, *_ in fresh(result)] == [
        f"{winner}-s{repeat}.{stage}" for repeat in (1, 2) for stage in ("1-one", "2-two")
    ]
    assert result.conclusion.verdict == "SUPPORTED"
    confirmed = result.conclusion.confirmed
    last = [value for run_id, _, value in fresh(result) if run_id.endswith("two")]
    assert confirmed.comparison.after == pytest.approx(sum(last) / 2)
    assert confirmed.comparison.before == 0.0


def test_without_seeds_what_the_last_stage_had_trained_is_scored_once_more(project):
    warm = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    temperature: 1.0")
    stages = STAGES.replace("[0.001, 0.05]", "[0.05, 0.02]")
    stages = stages.replace("steps: 16", "steps: 10")
    result = project.experiment(stages, metadata=warm, extra="confirm: {seeds: 0}\n").run()
    winner = result.conclusion.confirmed.comparison.arm
    ((run_id, steps, _),) = fresh(result)
    assert (run_id, steps) == (f"{winner}-s1", 10)


def test_cut_off_in_a_stage_of_its_confirmation_it_comes_to_the_same(project):
    project.code("callbacks", CUTS)
    (project.root / "cut").touch()
    extra = "confirm: {seeds: 1}\ncallbacks: [{kind: cuts}]\n"
    whole = forgotten(project.experiment(STAGES, extra=extra).run())
    (project.root / "cut").unlink()
    cut = project.experiment(STAGES, extra=extra)
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    result = Experiment.resume(cut.record.directory, quiet=True).run()
    assert fresh(result) == fresh(whole)
    assert result.conclusion.confirmed == whole.conclusion.confirmed


def test_a_baseline_in_stages_is_repeated_and_its_last_stages_are_the_noise(project):
    result = project.experiment(STAGES, metadata=AGAINST_AN_ARM, extra="control: {repeats: 2}\n").run()
    assert list(result.conclusion.noise_floor.runs) == [
        "learning_rate-0.001-s0.2-two",
        "learning_rate-0.001-control-s1.2-two",
        "learning_rate-0.001-control-s2.2-two",
    ]


def test_a_plan_counts_each_stage_of_the_confirmation(project):
    three = STAGES.replace("[0.001, 0.05]", "[0.001, 0.02, 0.1]")
    plan = load_experiment(project.config(three, metadata=AGAINST_AN_ARM, extra="confirm: {seeds: 2}\n"))
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        planned = plan_experiment(plan, index)
    assert (planned.confirm.runs, planned.confirm.steps) == (4, 96)
    assert planned.confirm.rollouts == 2 * 2 * 2 * 16  # seeds, sides, stages, tasks
