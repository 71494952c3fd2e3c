"""Claims from numbers: what each of them needs, and what the verdict is about."""

import attrs
import pytest

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.prose import verdict_line
from evsys_runtime.experiment.verdict.question import Question

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
)
ZEROS, ONES = [0.0] * 30, [1.0] * 30
MOST = [1.0] * 27 + [0.0] * 3


def evaluation(step, rewards, *, status="completed"):
    return EvaluationResult(
        benchmark="val",
        split="val",
        step=step,
        status=status,
        metrics={"mean_reward": MetricValue(value=sum(rewards) / len(rewards))},
        tasks=len(rewards),
        scored=len(rewards),
        task_rewards={f"t{i}": (reward,) for i, reward in enumerate(rewards)},
        benchmark_hash="b",
        verifier_hash="v",
    )


def arm(name, before, after, *, repeat=0):
    return ArmResult(
        run_id=f"{name}-s{repeat}",
        arm=name,
        repeat=repeat,
        seed=0,
        status="completed",
        identity=name,
        evaluations=(evaluation(0, before), evaluation(10, after)),
    )


def asked(claim, margin, **fields):
    return attrs.evolve(QUESTION, claim=claim, margin=margin, **fields)


@pytest.mark.parametrize(
    ("claim", "margin", "before", "after", "verdict"),
    [
        ("better", 0.5, ZEROS, MOST, "SUPPORTED"),
        ("better", 0.85, ZEROS, MOST, "INCONCLUSIVE"),  # 0.9 isn't shown to be more than 0.85
        ("better", 0.5, ONES, ZEROS, "REFUTED"),
        ("no_worse", 0.2, ONES, ONES, "SUPPORTED"),
        ("no_worse", 0.02, ONES, ONES, "INCONCLUSIVE"),
        ("no_worse", 0.2, ONES, ZEROS, "REFUTED"),
        ("equal", 0.2, ONES, ONES, "SUPPORTED"),
        ("equal", 0.2, ZEROS, MOST, "REFUTED"),
        ("worse", 0.0, ONES, ZEROS, "SUPPORTED"),
        ("worse", 0.5, ONES, ZEROS, "SUPPORTED"),
        ("worse", 0.0, ZEROS, ONES, "REFUTED"),
        ("worse", 0.0, ONES, ONES, "INCONCLUSIVE"),
    ],
)
def test_each_claim_is_tested_against_its_own_boundary(claim, margin, before, after, verdict):
    conclusion = conclude(asked(claim, margin), [arm("a", before, after)])
    (result,) = conclusion.claims
    assert (conclusion.verdict, conclusion.claim, conclusion.margin) == (verdict, claim, margin)
    outcomes = {"SUPPORTED": "supported", "REFUTED": "refuted", "INCONCLUSIVE": "undecided"}
    assert (result.outcome, result.subject, result.against) == (outcomes[verdict], "checkpoint", "base_model")
    assert (result.p_value <= 0.05) == (verdict == "SUPPORTED")


def test_one_training_run_supports_a_checkpoint_in_these_words():
    assert verdict_line(conclude(QUESTION, [arm("a", ZEROS, ONES)])) == (
        "SUPPORTED (this checkpoint): a beats base_model; enough to choose this checkpoint, not to expect the same of another run of its recipe"
    )


def test_enough_training_runs_support_a_recipe():
    conclusion = conclude(
        QUESTION, [arm("a", ZEROS, [*MOST[repeat:], *[0.0] * repeat], repeat=repeat) for repeat in range(4)]
    )
    assert verdict_line(conclusion) == "SUPPORTED (this recipe): a beats base_model"
    assert [claim.subject for claim in conclusion.claims] == ["checkpoint", "recipe"]


def test_runs_that_all_solve_every_task_support_their_recipe():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES, repeat=repeat) for repeat in range(4)])
    assert (conclusion.verdict, conclusion.subject) == ("SUPPORTED", "recipe")


def test_a_claim_about_all_arms_needs_each_of_them_and_falls_with_one():
    question = asked("equal", 0.3)
    both = conclude(question, [arm("a", ONES, ONES), arm("b", ONES, ONES)])
    assert both.reason.startswith("a equals base_model within 0.3, b equals base_model within 0.3")
    one = conclude(question, [arm("a", ONES, ONES), arm("b", ONES, ZEROS)])
    assert (one.verdict, one.reason) == (
        "REFUTED",
        "the numbers exclude that b equals base_model within 0.3",
    )


def test_a_contrast_is_the_only_comparison():
    question = attrs.evolve(QUESTION, baseline="b", contrast="c")
    conclusion = conclude(question, [arm("a", ZEROS, ONES), arm("b", ZEROS, ZEROS), arm("c", ZEROS, ONES)])
    assert [c.arm for c in conclusion.comparisons] == ["c"]
    assert (conclusion.verdict, conclusion.comparisons[0].p_corrected) == (
        "SUPPORTED",
        conclusion.comparisons[0].p_value,
    )


def test_an_invalid_scoring_makes_its_own_arm_invalid_and_no_other():
    broken = arm("b", ZEROS, ZEROS)
    broken = attrs.evolve(
        broken, evaluations=(broken.evaluations[0], evaluation(10, ZEROS, status="invalid"))
    )
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES), broken])
    assert conclusion.verdict == "CANDIDATE"
    assert [c.outcome for c in conclusion.comparisons] == ["win", "unscored"]
    assert "invalid" in conclusion.comparisons[1].reason
    assert conclude(QUESTION, [broken]).verdict == "INVALID"
