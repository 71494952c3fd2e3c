"""Equal runs of the baseline: how far they fall apart is what an effect has to exceed."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from scored_runs import QUESTION, scored_run
from small_project import Project

from evsys.errors import ConfigError
from evsys_record.retraction import retract
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.lineage import experiments
from evsys_runtime.experiment.result_schemas import validate_result
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.noise import floor_of, noise_floor, runs_above
from evsys_runtime.experiment.verdict.tables import score_tables

METADATA = """
metadata:
  success_metric: val.mean_reward
  baseline: slow
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 2}
"""
RUN = """
- name: %s
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: %s, steps: %s, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
ARMS = "runs:" + RUN % ("slow", 0.0, 2) + RUN % ("fast", 0.3, 8)


@pytest.fixture
def learns(project):
    project.write("train.jsonl", [{"prompt": "say a", "completion": "x"}] * 12)
    project.tasks([(f"t{i:02d}", "say a", "x") for i in range(12)])
    return project


def controlled(project: Project, block="control: {repeats: 2}\n", *, text=ARMS, metadata=METADATA):
    return project.experiment(text, metadata=metadata, extra=block)


def test_control_runs_repeat_the_baseline_with_seeds_of_their_own_and_are_no_candidates(learns):
    experiment = controlled(learns, "control: {repeats: 2}\nn_repeats: 2\nconfirm: {seeds: 3}\n")
    control = [arm for arm in experiment.plan.arms if arm.purpose == "control"]
    assert [arm.run_id for arm in control] == ["slow-control-s5", "slow-control-s6"]
    assert {arm.digest for arm in control} == {
        arm.digest for arm in experiment.plan.arms if arm.name == "slow"
    }

    result = experiment.run()
    conclusion = result.conclusion
    assert [c.arm for c in conclusion.comparisons] == ["fast"]
    assert conclusion.correction is None
    assert list(conclusion.noise_floor.runs) == ["slow-s0", "slow-s1", "slow-control-s5", "slow-control-s6"]
    assert conclusion.noise_floor.largest == 0.0
    assert (conclusion.verdict, result.status) == ("SUPPORTED", "completed")
    tree = json.loads((Path(result.directory) / "conclusion.json").read_text(encoding="utf-8"))
    validate_result(tree, "conclusion")
    page = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert "Noise floor: 4 equal runs of slow fall up to 0.000 apart on val.mean_reward" in page


def test_a_control_run_goes_on_after_a_kill(learns, monkeypatch):
    from evsys_runtime.experiment import scheduling

    trained = scheduling.run_arm

    async def cut_off(session, arm):
        if arm.purpose == "control":
            raise KeyboardInterrupt
        return await trained(session, arm)

    first = controlled(learns)
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "run_arm", cut_off)
        with pytest.raises(KeyboardInterrupt):
            first.run()
    resumed = Experiment.resume(first.record.directory, quiet=True).run()

    assert resumed.status == "completed"
    assert len(resumed.conclusion.noise_floor.runs) == 3


def test_untrained_weights_are_sampled_again_and_nothing_is_trained(learns):
    metadata = METADATA.replace("baseline: slow\n  ", "").replace(
        "max_tokens: 2}", "max_tokens: 2, temperature: 1.0}"
    )
    result = controlled(learns, metadata=metadata).run()

    control = [arm for arm in result.arms if arm.purpose == "control"]
    assert [arm.run_id for arm in control] == ["base_model-control-s1", "base_model-control-s2"]
    assert {(e.step, e.status) for arm in control for e in arm.evaluations} == {(0, "completed")}
    assert {arm.usage.trained_tokens for arm in control} == {0}
    noise = result.conclusion.noise_floor
    assert list(noise.runs) == ["base_model-s0", "base_model-s1", "base_model-s2"]
    assert [c.arm for c in result.conclusion.comparisons] == ["slow", "fast"]
    labels = [row[0] for table in score_tables(result.arms) for row in table.rows]
    assert not [
        label for label in labels if label == "base_model-control"
    ]  # no trained score of it is missing


def test_a_later_experiment_with_the_same_baseline_knows_the_noise_floor_and_whose_it_is(learns):
    first = controlled(learns).run()
    again = controlled(learns, "", text=ARMS.replace("learning_rate: 0.3", "learning_rate: 0.2")).run()
    other = controlled(learns, "", text=ARMS.replace("steps: 2", "steps: 3")).run()

    assert again.conclusion.noise_floor == attrs.evolve(
        first.conclusion.noise_floor, experiment_id=first.experiment_id
    )
    assert other.conclusion.noise_floor is None
    third = controlled(learns, "", text=ARMS.replace("learning_rate: 0.3", "learning_rate: 0.1")).run()
    assert third.conclusion.noise_floor.experiment_id == first.experiment_id  # where it was measured


def test_a_noise_floor_that_was_retracted_with_its_experiment_is_used_no_more(learns):
    first = controlled(learns).run()
    retract(Path(first.directory), "the grader had a fault")
    again = controlled(learns, "", text=ARMS.replace("learning_rate: 0.3", "learning_rate: 0.2")).run()
    assert again.conclusion.noise_floor is None


def test_the_index_is_opened_once_by_each_experiment_that_concludes(learns, monkeypatch):
    asked = []
    opened = experiments.earlier_index

    def counted(folder, own, tell):
        asked.append(own)
        return opened(folder, own, tell)

    monkeypatch.setattr(experiments, "earlier_index", counted)
    first = controlled(learns).run()
    assert (first.conclusion.noise_floor is not None, asked) == (True, [first.experiment_id])
    second = controlled(learns, "").run()
    assert asked == [first.experiment_id, second.experiment_id]
    assert second.conclusion.noise_floor.experiment_id == first.experiment_id
    metadata = METADATA.replace("max_tokens: 2}", "max_tokens: 2, split: test}")
    third = controlled(
        learns,
        metadata=metadata.replace("success_metric: val.mean_reward\n  baseline: slow\n  ", ""),
        block="",
    ).run()
    assert asked == [first.experiment_id, second.experiment_id, third.experiment_id]


@pytest.mark.parametrize(
    ("metadata", "text", "words"),
    [
        (METADATA.replace("baseline: slow\n  ", ""), ARMS, "the same answers each time"),
        ("", ARMS, "'control' needs a success_metric"),
        (METADATA, ARMS + RUN % ("slow-control", 0.1, 2), "as an arm is"),
        (METADATA.replace("slow", "fast"), ARMS, None),
    ],
)
def test_a_control_that_can_tell_nothing_is_refused(learns, metadata, text, words):
    if words is None:
        assert controlled(learns, text=text, metadata=metadata).plan.arms
        return
    with pytest.raises(ConfigError) as refused:
        controlled(learns, text=text, metadata=metadata)
    assert words in str(refused.value)


def run(name, share, **fields):
    """A run that solves the first `share` of its tasks."""
    return scored_run(name, round(share * 100), tasks=100, **fields)


BASE = [
    run("base", 0.4),
    run("base-control", 0.3, repeat=1, purpose="control"),
    run("base-control", 0.5, repeat=2, purpose="control"),
]


def test_the_floor_is_the_largest_difference_between_equal_runs_and_falls_with_the_root_of_repeats():
    noise = noise_floor(QUESTION, BASE)
    assert noise.runs == {"base-s0": 0.4, "base-control-s1": 0.3, "base-control-s2": 0.5}
    assert noise.largest == pytest.approx(0.2)
    assert noise.standard_deviation == pytest.approx(0.1 * 2**0.5)
    assert [floor_of(noise, repeats, repeats) for repeats in (1, 4)] == pytest.approx([0.2, 0.1])
    assert noise_floor(QUESTION, BASE[:1]) is None


@pytest.mark.parametrize(
    ("runs", "baseline_runs", "factor"),
    # root((1/n + 1/m) / 2), by hand: root(5/8), root(5/8), root(5/12), root(1/3)
    [(1, 4, 0.7906), (4, 1, 0.7906), (2, 3, 0.6455), (3, 3, 0.5774)],
)
def test_the_floor_goes_by_the_runs_of_each_side(runs, baseline_runs, factor):
    floor = floor_of(noise_floor(QUESTION, BASE), runs, baseline_runs)
    assert floor == pytest.approx(0.2 * factor, abs=1e-4)


def test_equal_arms_exceed_the_floor_as_often_however_many_runs_each_side_has():
    draw = np.random.default_rng(3)
    exceeded = {}
    for runs, baseline_runs in ((1, 1), (5, 5), (5, 1), (1, 5)):
        controls = draw.normal(size=(40_000, 4))
        largest = controls.max(axis=1) - controls.min(axis=1)
        arm, baseline = (draw.normal(size=(40_000, n)).mean(axis=1) for n in (runs, baseline_runs))
        unit = floor_of(attrs.evolve(noise_floor(QUESTION, BASE), largest=1.0), runs, baseline_runs)
        exceeded[runs, baseline_runs] = float(np.mean(np.abs(arm - baseline) > unit * largest))
    assert all(share == pytest.approx(exceeded[1, 1], abs=0.01) for share in exceeded.values())


def test_a_mean_of_many_runs_against_a_single_one_is_held_to_a_floor_that_is_nearly_that_of_single_runs():
    noise = noise_floor(QUESTION, BASE)
    results = [BASE[0], *(run("new", 0.89, repeat=number) for number in range(4))]
    conclusion = conclude(QUESTION, results, noise=noise)
    (new,) = conclusion.comparisons
    assert (new.n_seeds, new.n_baseline_seeds, new.outcome) == (4, 1, "win")
    lower = [BASE[0], *(run("new", 0.88, repeat=number) for number in range(4))]
    (new,) = conclude(QUESTION, lower, noise=noise).comparisons
    assert new.outcome == "inconclusive"
    assert "a mean of 4 and one of 1 of them 0.481" in new.reason


@pytest.mark.parametrize(
    ("share", "outcome"), [(0.52, "inconclusive"), (0.53, "win"), (0.28, "inconclusive"), (0.27, "loss")]
)
def test_a_win_or_loss_within_the_noise_is_inconclusive(share, outcome):
    """Three equal runs, 0.38 to 0.42: by Student's t with two degrees of freedom two may differ by 4.303 root(2) 0.02 = 0.122."""
    controls = [
        run("base-control", each, repeat=repeat, purpose="control")
        for repeat, each in enumerate((0.38, 0.42), 1)
    ]
    results = [BASE[0], *controls, run("new", share)]
    without = conclude(QUESTION, results)
    assert without.comparisons[0].outcome in ("win", "loss")
    conclusion = conclude(QUESTION, results, noise=noise_floor(QUESTION, results))
    assert conclusion.comparisons[0].outcome == outcome
    assert ("within the noise" in conclusion.comparisons[0].reason) == (outcome == "inconclusive")


def test_a_win_within_the_noise_says_so_and_what_would_settle_it():
    results = [*BASE, run("new", 0.55)]
    conclusion = conclude(QUESTION, results, noise=noise_floor(QUESTION, results))
    assert conclusion.verdict == "INCONCLUSIVE"
    assert conclusion.reason == (
        "the effect of new, +0.150 is within the noise: 3 equal runs of base fall up to 0.200 apart, "
        "so two of them may differ by 0.609"
    )
    assert conclusion.settle.startswith("17 training runs of new and of base")
    assert runs_above(conclusion.noise_floor, 0.15) == 17
    assert runs_above(conclusion.noise_floor, 0.2) == 10


def test_a_noise_floor_of_another_metric_holds_nothing_back():
    noise = attrs.evolve(noise_floor(QUESTION, BASE), metric="other.mean_reward")
    assert conclude(QUESTION, [*BASE, run("new", 0.55)], noise=noise).verdict == "SUPPORTED"
