"""Verdicts from numbers: what may be said, and what may not."""

import re

import attrs
import numpy as np
import pytest

from evsys.types import ArmResult, EvaluationResult, Failure, MetricValue, Settling, Usage
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.prose import comparison_sentence, unflagged_line, verdict_line
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.settle import Open, settling_advice
from evsys_runtime.experiment.verdict.settling_curve import settling_curve
from evsys_stats.paired import paired_difference
from evsys_stats.power import detectable, tasks_to_place

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
)


def evaluation(step, rewards, *, no_score=0, status="completed", benchmark_hash="b", **fields):
    values = {f"t{i}": (float(r),) for i, r in enumerate(rewards)}
    mean = float(np.mean(rewards)) if len(rewards) else None
    return EvaluationResult(
        benchmark="val",
        split="val",
        step=step,
        status=status,
        metrics={"mean_reward": MetricValue(value=mean)},
        tasks=len(rewards),
        scored=len(rewards),
        no_score=no_score,
        task_rewards=values,
        benchmark_hash=benchmark_hash,
        verifier_hash="v",
        **fields,
    )


def arm(name, before, after, *, repeat=0, **fields):
    evaluations = tuple(
        evaluation(step, rewards) for step, rewards in ((0, before), (10, after)) if rewards is not None
    )
    return ArmResult(
        run_id=f"{name}-s{repeat}",
        arm=name,
        repeat=repeat,
        seed=0,
        status="completed",
        identity=name,
        evaluations=evaluations,
        **fields,
    )


ZEROS, ONES = [0.0] * 30, [1.0] * 30


def test_a_single_arm_that_wins_is_supported():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES)])
    assert (conclusion.verdict, conclusion.best_arm, conclusion.comparisons[0].outcome) == (
        "SUPPORTED",
        "a",
        "win",
    )


def test_an_arm_that_changed_nothing_is_refuted_when_the_wanted_effect_is_excluded():
    question = attrs.evolve(QUESTION, margin=0.2)
    conclusion = conclude(question, [arm("a", ZEROS, ZEROS)])
    assert (conclusion.verdict, conclusion.comparisons[0].outcome) == ("REFUTED", "tie")


def test_an_undecided_verdict_says_what_it_hangs_on():
    failed = attrs.evolve(arm("b", ZEROS, None), status="failed")
    wanted = attrs.evolve(QUESTION, margin=0.25)
    unscored = conclude(wanted, [arm("a", ZEROS, ZEROS), failed])
    assert verdict_line(unscored) == (
        "INCONCLUSIVE: no arm that was scored beats base_model, but b was not scored"
    )
    both = conclude(wanted, [arm("a", ZEROS, ZEROS), failed, attrs.evolve(failed, arm="c", run_id="c-s0")])
    assert both.reason == "no arm that was scored beats base_model, but b, c were not scored"
    some = [1.0] * 7 + [0.0] * 23  # significant, and its interval holds the minimum
    open_ = conclude(wanted, [arm("a", ZEROS, some), failed])
    assert (
        open_.reason == "the numbers neither show nor exclude an effect of more than 0.25 against base_model"
    )
    chance = conclude(QUESTION, [arm("a", ZEROS, [1.0, *ZEROS[1:]])])
    assert chance.reason == "no arm differs from base_model beyond what chance explains"


@pytest.mark.parametrize("claim", ["better", "no_worse", "equal"])
def test_two_sides_on_the_floor_are_uninformative_and_no_tie(claim):
    bounded = attrs.evolve(QUESTION, possible=lambda rewards: rewards, claim=claim, margin=0.2)
    conclusion = conclude(bounded, [arm("a", ZEROS, ZEROS)])
    assert (conclusion.verdict, conclusion.comparisons[0].outcome) == ("INCONCLUSIVE", "inconclusive")
    assert {each.outcome for each in conclusion.claims} == {"undecided"}
    assert conclusion.reason == (
        "a and base_model are on the floor: every task of both scores 0.000, the worst possible, so they can't be distinguished"
    )
    assert conclusion.settle == "tasks of which base_model solves some: easier ones, or partial credit"


def test_the_floor_of_a_metric_where_less_is_better_is_its_highest_value():
    errors = attrs.evolve(QUESTION, possible=lambda rewards: rewards, direction="min", margin=0.2)
    assert "on the floor" in conclude(errors, [arm("a", ONES, ONES)]).reason
    assert conclude(errors, [arm("a", ZEROS, ZEROS)]).verdict == "REFUTED"


def test_the_test_that_is_named_is_the_one_whose_p_value_is_shown():
    some = [1.0] * 25 + [0.0] * 5
    for margin, name in ((0.0, "McNemar exact"), (0.2, "paired score test")):
        conclusion = conclude(attrs.evolve(QUESTION, margin=margin), [arm("a", ZEROS, some)])
        (comparison,) = conclusion.comparisons
        assert comparison.method == name
        assert f", {name}, 30 tasks" in comparison_sentence(conclusion, comparison)
        assert conclusion.claims[0].test == name
    partial = [0.5 + i / 100 for i in range(30)]
    (comparison,) = conclude(attrs.evolve(QUESTION, margin=0.2), [arm("a", ZEROS, partial)]).comparisons
    assert comparison.method == "wild bootstrap and weighted means"


@pytest.mark.parametrize(
    ("claim", "margin"), [("better", 0.0), ("better", 0.1), ("no_worse", 0.1), ("equal", 0.2)]
)
def test_what_would_settle_it_is_counted_at_the_level_of_the_next_look(claim, margin):
    some = [1.0] * 3 + [0.0] * 27
    question = attrs.evolve(QUESTION, claim=claim, margin=margin)

    def tasks(question):
        conclusion = conclude(question, [arm("a", [0.0] * 28 + [1.0] * 2, some)])
        assert conclusion.verdict == "INCONCLUSIVE"
        first = conclusion.settling or conclusion.settling_curve[0]
        return first.tasks

    assert tasks(attrs.evolve(question, next_level=0.0039)) > tasks(question)


def test_an_effect_has_one_interval_at_the_level_of_its_look_wherever_it_is_shown():
    question = attrs.evolve(QUESTION, level=0.01)
    conclusion = conclude(question, [arm("a", ZEROS, [1.0] * 20 + [0.0] * 10)])
    (comparison,), (claim,) = conclusion.comparisons, conclusion.claims
    assert (comparison.low, comparison.high) == (claim.low, claim.high)
    assert comparison.level == 0.01
    ends = f"(99 % interval {comparison.low:.3f} to {comparison.high:.3f}, p"
    assert ends in comparison_sentence(conclusion, comparison)
    wider = conclude(QUESTION, [arm("a", ZEROS, [1.0] * 20 + [0.0] * 10)]).comparisons[0]
    assert comparison.low < wider.low < wider.high < comparison.high


def test_an_arm_that_changed_nothing_is_never_supported():
    assert conclude(QUESTION, [arm("a", ZEROS, ZEROS)]).verdict == "INCONCLUSIVE"


def test_the_same_tiny_gain_on_every_task_supports_nothing():
    conclusion = conclude(QUESTION, [arm("a", [0.5] * 50, [0.5001] * 50)])
    assert conclusion.verdict == "INCONCLUSIVE"
    assert conclusion.comparisons[0].low < 0


def test_a_harmful_arm_is_refuted():
    conclusion = conclude(QUESTION, [arm("a", ONES, ZEROS)])
    assert (conclusion.verdict, conclusion.comparisons[0].outcome) == ("REFUTED", "loss")


def test_a_winner_among_several_is_only_a_candidate_and_says_what_settles_it():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES), arm("b", ZEROS, ZEROS)])
    assert conclusion.verdict == "CANDIDATE"
    assert conclusion.correction == "bonferroni"
    assert "fresh rollouts" in conclusion.settle


def test_a_small_gain_on_few_tasks_is_inconclusive_and_names_the_tasks_needed():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, [1.0, 1.0] + [0.0] * 28)])
    assert conclusion.verdict == "INCONCLUSIVE"
    assert "tasks would show" in conclusion.settle


def test_a_significant_gain_below_the_minimum_effect_is_no_win():
    question = attrs.evolve(QUESTION, margin=0.9)
    assert conclude(question, [arm("a", ZEROS, [1.0] * 15 + [0.0] * 15)]).comparisons[0].outcome == "tie"


def test_less_is_better_turns_outcomes_and_best_arm_around():
    question = attrs.evolve(QUESTION, direction="min")
    conclusion = conclude(question, [arm("low", ONES, ZEROS), arm("high", ONES, ONES)])
    assert conclusion.best_arm == "low"
    assert [c.outcome for c in conclusion.comparisons] == ["win", "inconclusive"]


def test_another_arm_can_be_the_baseline_and_is_not_compared_with_itself():
    question = attrs.evolve(QUESTION, baseline="plain")
    conclusion = conclude(question, [arm("plain", ZEROS, ZEROS), arm("better", ZEROS, ONES)])
    assert [c.arm for c in conclusion.comparisons] == ["better"]
    assert conclusion.verdict == "SUPPORTED"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            evaluation(0, ZEROS),
            evaluation(
                5,
                ONES,
                status="invalid",
                failure=Failure(
                    boundary="verifier", message="9 of 39 rollouts have no score", error_type="NoScore"
                ),
            ),
            "have no score",
        ),
        (evaluation(0, ZEROS[:9]), evaluation(5, ONES[:9]), "share 9 scored tasks"),
        (evaluation(0, ZEROS), evaluation(5, ONES, benchmark_hash="other"), "differs"),
    ],
)
def test_numbers_that_cannot_be_compared_are_invalid(before, after, words):
    result = ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=0,
        status="completed",
        identity="a",
        evaluations=(before, after),
    )
    conclusion = conclude(QUESTION, [result])
    assert conclusion.verdict == "INVALID"
    assert words in conclusion.reason


def test_an_arm_with_an_invalid_evaluation_invalidates_itself_alone():
    missing = Failure(boundary="verifier", message="9 of 39 rollouts have no score", error_type="NoScore")
    broken = ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=0,
        status="completed",
        identity="a",
        evaluations=(evaluation(0, ZEROS), evaluation(5, ONES, status="invalid", failure=missing)),
    )
    conclusion = conclude(QUESTION, [broken, arm("b", ZEROS, ONES)])
    assert [(one.arm, one.outcome) for one in conclusion.comparisons] == [("a", "unscored"), ("b", "win")]
    assert conclusion.verdict != "INVALID"
    assert any("have no score" in warning for warning in conclusion.warnings)


def test_an_arm_whose_evaluation_failed_is_unscored_and_named():
    failed = evaluation(
        5,
        [],
        status="failed",
        failure=Failure(boundary="verifier", message="judge is down", error_type="OSError"),
    )
    result = ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=0,
        status="completed",
        identity="a",
        evaluations=(evaluation(0, ZEROS), failed),
    )
    conclusion = conclude(QUESTION, [result, arm("b", ZEROS, ONES)])
    assert [c.outcome for c in conclusion.comparisons] == ["unscored", "win"]
    assert any("judge is down" in warning for warning in conclusion.warnings)


def test_nothing_scored_is_inconclusive_with_the_reason():
    failure = Failure(boundary="backend", message="out of memory", error_type="MemoryError")
    result = ArmResult(
        run_id="a-s0", arm="a", repeat=0, seed=0, status="failed", identity="a", failure=failure
    )
    conclusion = conclude(QUESTION, [result])
    assert conclusion.verdict == "INCONCLUSIVE"
    assert "out of memory" in conclusion.reason


def test_no_question_gives_no_verdict():
    assert conclude(None, [arm("a", ZEROS, ONES)]).verdict is None


def test_repeats_are_averaged_and_counted_in_words():
    conclusion = conclude(
        QUESTION, [arm("a", ZEROS, ONES), arm("a", ZEROS, [1.0] * 15 + [0.0] * 15, repeat=1)]
    )
    comparison = conclusion.comparisons[0]
    assert comparison.after == pytest.approx(0.75)
    assert comparison.n_seeds == 2
    assert "2 training runs" in comparison_sentence(conclusion, comparison)


def test_task_order_does_not_matter():
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 2, 40).astype(float), rng.integers(0, 2, 40).astype(float)
    order = rng.permutation(40)
    one = conclude(QUESTION, [arm("a", list(before), list(after))])
    two = conclude(QUESTION, [arm("a", list(before[order]), list(after[order]))])
    assert one.comparisons[0].p_value == two.comparisons[0].p_value
    assert verdict_line(one) == verdict_line(two)


def test_twenty_equal_arms_rarely_yield_a_winner():
    """300 sweeps of 20 equal arms on 60 tasks: at most 5 % false winners, 15, plus two standard errors of simulation."""
    false_winners = 0
    for sweep in range(300):
        rng = np.random.default_rng(sweep)
        base = rng.integers(0, 2, 60).astype(float)
        arms = [arm(f"a{i}", list(base), list(rng.integers(0, 2, 60).astype(float))) for i in range(20)]
        false_winners += any(c.outcome == "win" for c in conclude(QUESTION, arms).comparisons)
    assert false_winners <= 15 + 2 * (300 * 0.05 * 0.95) ** 0.5


def test_an_arm_that_failed_on_the_way_is_unscored_whatever_it_scored_before():
    failure = Failure(boundary="algorithm", message="step 51", error_type="RuntimeError")
    broken = attrs.evolve(arm("a", ZEROS, ONES), status="failed", failure=failure)
    conclusion = conclude(QUESTION, [broken])
    assert (conclusion.verdict, conclusion.best_arm) == ("INCONCLUSIVE", None)
    assert conclusion.comparisons[0].outcome == "unscored"


def test_the_best_of_repeats_that_crashed_is_only_a_candidate():
    failure = Failure(boundary="backend", message="out of memory", error_type="MemoryError")
    crashed = [
        attrs.evolve(arm("a", ZEROS, None, repeat=repeat), status="failed", failure=failure)
        for repeat in (1, 2)
    ]
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES), *crashed])
    assert conclusion.verdict == "CANDIDATE"
    assert "only 1 of 3 repeats" in conclusion.reason


def test_arms_that_were_never_reached_count():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES)], planned={"a": 1, "b": 1})
    assert conclusion.verdict == "CANDIDATE"
    assert conclusion.comparisons[1].reason == "b: it never ran"
    assert conclusion.comparisons[0].p_corrected == pytest.approx(2 * conclusion.comparisons[0].p_value)


def test_a_baseline_that_was_never_reached_leaves_arms_unscored():
    question = attrs.evolve(QUESTION, baseline="plain")
    conclusion = conclude(question, [arm("a", ZEROS, ONES)], planned={"a": 1, "plain": 1})
    assert conclusion.comparisons[0].outcome == "unscored"
    assert "it never ran" in conclusion.comparisons[0].reason


def test_a_metric_that_is_no_mean_over_tasks_is_never_decided_by_its_means():
    """The worst task's reward rises from 0 to 1 while the mean says otherwise: no test here applies."""

    def scored(step, rewards):
        return attrs.evolve(
            evaluation(step, rewards), metrics={"mean_reward": MetricValue(value=min(rewards))}
        )

    result = attrs.evolve(
        arm("a", None, None), evaluations=(scored(0, [0.0] + ONES[1:]), scored(9, [0.9] * 30))
    )
    conclusion = conclude(QUESTION, [result])
    assert conclusion.verdict == "INCONCLUSIVE"
    assert "not a mean over tasks" in conclusion.comparisons[0].reason


def test_each_repeat_is_compared_with_its_own_untrained_scores():
    """At temperature 1 the untrained scores differ by repeat; pairing repeat with repeat leaves no difference here."""
    rng = np.random.default_rng(3)
    scores = [list(rng.integers(0, 2, 40).astype(float)) for _ in range(2)]
    results = [arm("a", own, own, repeat=repeat) for repeat, own in enumerate(scores)]
    assert conclude(QUESTION, results).comparisons[0].effect == 0.0


# --- what would settle it, and what can be seen at all ------------------------------------------------------------


def tasks_named(conclusion):
    return int(re.search(r"about (\d+) tasks", conclusion.settle)[1])


def test_tasks_that_all_agree_are_no_perfect_evidence_and_a_minimum_effect_gives_the_tasks_to_aim_at():
    """134 tasks: at 5 % of them differing in one direction, 5 or more do with a probability of 80 %."""
    conclusion = conclude(attrs.evolve(QUESTION, margin=0.05), [arm("a", ZEROS, ZEROS)])
    assert conclusion.verdict == "INCONCLUSIVE"
    assert conclusion.comparisons[0].smallest_detectable_effect == pytest.approx(0.2137, abs=1e-3)
    assert conclusion.settle == "about 134 tasks would show an effect of 0.05 for a (30 tasks were scored)"
    assert conclusion.settling == Settling(arm="a", tasks=134)


def test_a_minimum_effect_is_aimed_at_and_not_the_effect_that_happened_to_come_up():
    some = [1.0, 1.0, 1.0, *ZEROS[3:]]
    free, set_ = (
        conclude(attrs.evolve(QUESTION, margin=minimum), [arm("a", ZEROS, some)]) for minimum in (0.0, 0.02)
    )
    assert free.settle.startswith("a minimum_effect to aim at: for a about ")
    assert free.settling is None
    assert "an effect of 0.02 for a" in set_.settle
    of = {point.effect: point.tasks for point in free.settling_curve}
    assert of[0.02] == tasks_named(set_) > 4 * of[0.1]
    assert set_.settle.endswith(f", and {of[0.1]} tasks one of 0.1, as it came up (30 tasks were scored)")
    assert set_.settling_curve == ()


def test_the_curve_has_more_tasks_for_smaller_effects_and_what_they_take():
    def timed(result):
        scorings = [
            attrs.evolve(each, seconds=3.0, usage=Usage(completion_tokens=9, cost_usd=0.3))
            for each in result.evaluations
        ]
        return attrs.evolve(
            result, evaluations=tuple(scorings), seconds=26.0, usage=Usage(trained_tokens=5, cost_usd=1.6)
        )

    some = [1.0, 1.0, 1.0, *ZEROS[3:]]
    (curve, against_arm) = (
        conclude(attrs.evolve(QUESTION, baseline=baseline), results).settling_curve
        for baseline, results in (
            ("base_model", [timed(arm("a", ZEROS, some))]),
            ("b", [timed(arm("a", ZEROS, some)), timed(arm("b", ZEROS, ZEROS))]),
        )
    )
    effects, tasks = [point.effect for point in curve], [point.tasks for point in curve]
    assert effects == sorted(effects, reverse=True)
    assert tasks == sorted(tasks)
    assert min(tasks) > 30
    for point in curve:  # 20 s and $1 of training, and 0.1 s and $0.01 for each task
        assert point.seconds == pytest.approx(20 + 0.1 * point.tasks, abs=0.1)
        assert point.cost_usd == pytest.approx(1 + 0.01 * point.tasks)
    for point in against_arm:
        assert point.seconds == pytest.approx(2 * (20 + 0.1 * point.tasks), abs=0.1)


def test_a_precise_design_has_a_curve_of_finer_effects():
    rng = np.random.default_rng(1)
    before = rng.random(4000)
    found = paired_difference(before + rng.normal(0, 0.001, 4000), before)
    seen = detectable(found)
    assert [point.effect for point in settling_curve(found)] == pytest.approx([seen / 2, seen / 4], rel=0.05)


@pytest.mark.parametrize(("claim", "gap"), [("no_worse", 0.05 + 0.1), ("equal", 0.2)])
def test_an_open_claim_with_a_margin_asks_for_the_tasks_that_place_the_effect(claim, gap):
    margin = 0.05 if claim == "no_worse" else 0.3
    some = [1.0, 1.0, 1.0, *ZEROS[3:]]
    question = attrs.evolve(QUESTION, claim=claim, margin=margin)
    undecided = settling_advice((), [opened(some)], question=question, level=0.05)
    (paired,) = (one.paired for one in [opened(some)])
    tasks = max(31, tasks_to_place(paired, gap))
    assert undecided.settling == Settling(arm="a", tasks=tasks)
    assert undecided.words == (
        f"about {tasks} tasks would show whether a's effect of 0.1 is within the margin of {margin} (30 tasks were scored)"
    )
    near = attrs.evolve(question, margin=0.1, claim="equal")
    assert settling_advice((), [opened(some)], question=near, level=0.05).words.startswith("another margin: ")


def opened(after):
    """An open comparison with an arm that scored nothing before."""
    comparison = conclude(QUESTION, [arm("a", ZEROS, after)]).comparisons[0]
    return Open(
        comparison=comparison, paired=paired_difference(np.array(after), np.zeros(30)), significant=False
    )


def test_an_effect_that_is_real_but_perhaps_too_small_asks_for_the_tasks_that_place_it():
    some = [1.0] * 7 + [0.0] * 23
    conclusion = conclude(attrs.evolve(QUESTION, margin=0.3), [arm("a", ZEROS, some)])
    assert conclusion.comparisons[0].p_value == 1.0  # it isn't more than the margin
    assert re.fullmatch(
        r"about \d+ tasks would show whether a's effect of 0\.233 reaches the minimum_effect of 0\.3 \(30 tasks were scored\)",
        conclusion.settle,
    )
    assert tasks_named(conclusion) > 100


def test_an_effect_right_at_the_minimum_is_not_told_to_be_settled_by_tasks():
    some = [1.0] * 7 + [0.0] * 23
    conclusion = conclude(attrs.evolve(QUESTION, margin=0.2334), [arm("a", ZEROS, some)])
    assert "another minimum_effect" in conclusion.settle
    assert conclusion.settling is None


def test_equal_arms_without_a_minimum_effect_are_told_to_set_one():
    assert conclude(QUESTION, [arm("a", ZEROS, ZEROS)]).settle.startswith("a minimum_effect to aim at")


def test_more_arms_need_more_tasks_each():
    some = [1.0, 1.0, *ZEROS[2:]]
    alone = conclude(QUESTION, [arm("a", ZEROS, some)])
    among = conclude(QUESTION, [arm("a", ZEROS, some), *(arm(f"b{i}", ZEROS, ZEROS) for i in range(9))])
    assert tasks_named(among) > tasks_named(alone)


def test_a_design_without_a_chance_says_so():
    def clustered(result):
        groups = {f"t{i}": str(i % 4) for i in range(30)}
        return attrs.evolve(
            result, evaluations=tuple(attrs.evolve(e, clusters=groups) for e in result.evaluations)
        )

    conclusion = conclude(QUESTION, [clustered(arm("a", ZEROS, ONES))])
    assert conclusion.comparisons[0].outcome == "inconclusive"
    assert conclusion.comparisons[0].smallest_detectable_effect is None
    assert conclusion.comparisons[0].reason == (
        "one training run per recipe; 4 clusters give p = 0.12 at best, and 0.05 is needed"
    )
    assert re.match(
        r"a minimum_effect to aim at: for a about \d+ tasks in \d+ clusters would show an effect of 0.5, ",
        conclusion.settle,
    )


# --- what a difference can be -------------------------------------------------------------------------------------


def varied(count):
    """Rewards of `count` repeats that are 0 or 1, nearly all 1."""
    rng = np.random.default_rng(7)
    return [list((rng.random(30) < 0.97).astype(float)) for _ in range(count)]


def test_no_interval_holds_a_difference_that_cannot_be():
    repeats = [arm("a", ZEROS, after, repeat=i) for i, after in enumerate(varied(3))]
    within = conclude(attrs.evolve(QUESTION, possible=lambda rewards: rewards), repeats).comparisons[0]
    assert within.high == 1.0
    assert 0.0 < within.low < within.effect < 1.0
    declared = attrs.evolve(QUESTION, possible=lambda rewards: rewards, reward_range=(0.0, 2.0))
    assert conclude(declared, repeats).comparisons[0].high > 1.0
    assert conclude(QUESTION, repeats).comparisons[0].high > 1.0


def test_a_win_that_hangs_on_tasks_that_were_trained_on_is_none_without_them():
    leaked = [1.0] * 12 + [0.0] * 18
    conclusion = conclude(
        QUESTION, [arm("a", ZEROS, leaked)], flagged={f"t{i}" for i in range(12)}, allow_leak=True
    )
    assert conclusion.verdict == "SUPPORTED"
    rest = conclusion.without_flagged
    assert rest is not None
    assert (rest.verdict, rest.comparisons[0].effect, rest.comparisons[0].n_tasks) == (
        "INCONCLUSIVE",
        0.0,
        18,
    )
    assert (rest.comparisons[0].before, rest.comparisons[0].after) == (0.0, 0.0)
    assert unflagged_line(conclusion) == (
        "without 12 tasks of val found among the training rows: INCONCLUSIVE: "
        "no arm differs from base_model beyond what chance explains (effect of a +0.000)"
    )


@pytest.mark.parametrize(("leaked", "verdict"), [(3, "SUPPORTED"), (4, "INVALID"), (30, "INVALID")])
def test_a_benchmark_of_which_more_than_a_tenth_was_trained_on_decides_nothing(leaked, verdict):
    flagged = {f"t{i}" for i in range(leaked)}
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged=flagged)
    assert conclusion.verdict == verdict
    if verdict == "INVALID":
        assert conclusion.reason == f"{leaked} of 30 tasks of val are among the training rows, more than 10%"
        allowed = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged=flagged, allow_leak=True)
        assert verdict_line(allowed).startswith(
            f"SUPPORTED (this checkpoint) ({leaked / 30:.0%} of the tasks were trained on)"
        )
        assert f"{conclusion.reason}; metadata.allow_leak lets them decide" in allowed.warnings


def test_a_win_without_the_tasks_that_were_trained_on_is_told_as_one():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged={"t0"})
    rest = conclusion.without_flagged
    assert rest is not None
    assert (rest.verdict, rest.comparisons[0].n_tasks) == ("SUPPORTED", 29)


def test_too_few_tasks_that_were_not_trained_on_allow_no_verdict():
    few = {f"t{i}" for i in range(25)}
    rest = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged=few).without_flagged
    assert rest is not None
    assert rest.verdict == "INVALID"
    assert "share 5 scored tasks" in rest.reason
    none = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged={f"t{i}" for i in range(30)}).without_flagged
    assert none is not None
    assert none.verdict == "INCONCLUSIVE"
    assert "every scored task is among the training rows" in none.reason


def test_flagged_tasks_that_were_not_scored_change_nothing():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, ONES)], flagged={"elsewhere"})
    assert conclusion.without_flagged is None
    assert unflagged_line(conclusion) is None


def test_a_metric_that_is_no_mean_over_tasks_is_not_known_without_some_of_them():
    question = attrs.evolve(QUESTION, task_value=lambda rewards: 0.5)
    rest = conclude(question, [arm("a", ZEROS, ONES)], flagged={"t0"}).without_flagged
    assert rest is not None
    assert rest.verdict == "INCONCLUSIVE"
    assert "not a mean over tasks" in rest.reason


def runs(name, means, *, tasks=40, noise=0.15):
    """Repeats of an arm whose training runs have these mean scores, against untrained zeros."""
    rng = np.random.default_rng(len(name))
    return [
        arm(name, [0.0] * tasks, list(np.clip(rng.normal(m, noise, tasks), -1, 1)), repeat=r)
        for r, m in enumerate(means)
    ]


def test_four_runs_of_a_recipe_allow_a_claim_about_it_and_three_do_not():
    repeats = runs("a", [0.5, 0.52, 0.47, 0.55])
    conclusion = conclude(QUESTION, repeats)
    assert (conclusion.verdict, conclusion.comparisons[0].claim) == ("SUPPORTED", "recipe")
    assert conclusion.comparisons[0].method == "two-way t"
    assert [c.claim for c in conclusion.checkpoints] == ["checkpoint"]
    fewer = conclude(QUESTION, repeats[:3])
    assert (fewer.comparisons[0].claim, fewer.checkpoints) == ("checkpoint", ())
    assert fewer.comparisons[0].reason == "3 training runs per recipe"


def test_runs_that_differ_too_much_support_no_recipe_and_what_holds_of_them_is_told_apart():
    conclusion = conclude(QUESTION, runs("a", [0.6, 0.1, 0.5, 0.0]))
    assert (conclusion.verdict, conclusion.comparisons[0].outcome) == ("INCONCLUSIVE", "inconclusive")
    assert conclusion.checkpoints[0].outcome == "win"
    assert "the runs of a that were trained do beat base_model" in conclusion.reason
    assert "training runs of each recipe" in conclusion.settle


def test_seeds_of_two_trained_arms_are_permuted():
    plain = runs("plain", [0.2, 0.22, 0.18, 0.21, 0.2])
    better = runs("b", [0.5, 0.52, 0.48, 0.47, 0.55])
    conclusion = conclude(attrs.evolve(QUESTION, baseline="plain"), [*plain, *better])
    (comparison,) = conclusion.comparisons
    assert (comparison.method, comparison.outcome) == ("seed permutation, two-way t", "win")
    assert comparison.p_value == pytest.approx(2 / 252)  # the floor of five seeds a side
    fewer = conclude(attrs.evolve(QUESTION, baseline="plain"), [*plain[:2], *better])
    assert fewer.comparisons[0].claim == "checkpoint"
    assert fewer.comparisons[0].reason == "5 training runs and 2 of plain"


def test_arms_of_one_experiment_are_told_by_one_test():
    """Partial credit in one arm: McNemar's p beside a bootstrap's in one table would be two measures."""
    partial = [0.5] * 15 + [1.0] * 15
    mixed = conclude(QUESTION, [arm("a", ZEROS, ONES), arm("b", ZEROS, partial)])
    assert [c.method for c in mixed.comparisons] == ["wild bootstrap"] * 2
    alike = conclude(QUESTION, [arm("a", ZEROS, ONES), arm("b", ZEROS, [0.0] * 10 + [1.0] * 20)])
    assert [c.method for c in alike.comparisons] == ["McNemar exact", "McNemar mid-p"]


def test_tasks_that_only_one_arm_has_a_score_of_are_counted_and_named():
    conclusion = conclude(QUESTION, [arm("a", ZEROS, [1.0] * 32)])
    assert (conclusion.comparisons[0].n_tasks, conclusion.comparisons[0].n_missing) == (30, 2)
    assert (
        "2 tasks have a score of only one of a and base_model and don't count: t30, t31"
        in conclusion.warnings
    )


def test_a_conclusion_says_with_what_its_numbers_were_made():
    procedure = conclude(attrs.evolve(QUESTION, seed=7), [arm("a", ZEROS, ONES)]).procedure
    assert (procedure.level, procedure.draws, procedure.seed, procedure.numpy) == (
        0.05,
        10_000,
        7,
        np.__version__,
    )
