"""Samples without a score: counted per side, and no outcome hangs on what they would have been."""

import attrs

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    reward_range=(0.0, 1.0),
)


def scoring(step, rewards, samples):
    tasks = {f"t{i:03d}": tuple(values) for i, values in enumerate(rewards) if values}
    value = sum(sum(values) / len(values) for values in tasks.values()) / len(tasks)
    return EvaluationResult(
        benchmark="val",
        split="val",
        step=step,
        status="completed",
        metrics={"mean_reward": MetricValue(value=value)},
        tasks=len(rewards),
        num_samples=samples,
        task_rewards=tasks,
        benchmark_hash="b",
        verifier_hash="v",
    )


def run(before, after, samples=2):
    return ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=0,
        status="completed",
        identity="a",
        evaluations=(scoring(0, before, samples), scoring(10, after, samples)),
    )


HALF = [(1.0, 0.0)] * 40


def test_a_win_that_missing_samples_could_undo_is_inconclusive_with_that_reason():
    conclusion = conclude(QUESTION, [run(HALF, [(1.0,)] * 8 + [(1.0, 0.0)] * 32)])
    (comparison,) = conclusion.comparisons
    assert (conclusion.verdict, comparison.outcome) == ("INCONCLUSIVE", "inconclusive")
    assert "depends on what its missing samples would have scored: 8 of 80 samples of a" in conclusion.reason
    assert comparison.effect_bounds == (0.0, 0.1)


def test_a_win_that_no_missing_sample_can_undo_is_supported():
    conclusion = conclude(QUESTION, [run(HALF, [(1.0,)] * 2 + [(1.0, 1.0)] * 38)])
    assert conclusion.verdict == "SUPPORTED"
    assert conclusion.comparisons[0].effect_bounds == (0.475, 0.5)


def test_missing_samples_are_counted_per_side_and_a_difference_is_a_warning():
    after = [(1.0,)] * 2 + [()] + [(1.0, 1.0)] * 37
    before = [(1.0, 0.0)] * 39 + [(0.0,)]
    (comparison,) = (conclusion := conclude(QUESTION, [run(before, after)])).comparisons
    assert (comparison.n_missing, comparison.missing_samples, comparison.baseline_missing_samples) == (
        4,
        4,
        1,
    )
    assert any(
        "the sides lack different numbers of samples: 4 of 80 samples of a and 1 of 80 of base_model"
        in warning
        for warning in conclusion.warnings
    )


def test_missing_samples_count_against_a_claim_where_less_is_better_too():
    less = attrs.evolve(QUESTION, direction="min")
    conclusion = conclude(less, [run(HALF, [(0.0,)] * 8 + [(1.0, 0.0)] * 32)])
    assert conclusion.comparisons[0].outcome == "inconclusive"
    assert conclusion.comparisons[0].effect_bounds == (0.0, 0.1)
