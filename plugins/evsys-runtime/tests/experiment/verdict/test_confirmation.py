"""What a winner's second trial makes of the verdict, from numbers alone."""

from __future__ import annotations

import attrs
import pytest
from scored_runs import QUESTION
from scored_runs import scored_run as run

from evsys.types import Settling
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.confirmation import Confirming
from evsys_runtime.experiment.verdict.noise import noise_floor
from evsys_runtime.experiment.verdict.prose import confirmed_line

FINAL = attrs.evolve(QUESTION, benchmark="final")


def again(winner, base, *, seeds=1, question=QUESTION, arm="a", **fields):
    """The second trial of an arm, by the tasks that it and the baseline solve; None for one that wasn't scored."""
    made = []
    for repeat in range(1, 1 + seeds):
        for name, solved in ((arm, winner), ("base", base)):
            if solved is None:
                made.append(
                    attrs.evolve(
                        run(name, 0, repeat=repeat, purpose="confirm"), evaluations=(), status="failed"
                    )
                )
            else:
                more = fields if name == arm else {}
                made.append(
                    run(name, solved, repeat=repeat, purpose="confirm", benchmark=question.benchmark, **more)
                )
    asked = Confirming(question=question, winner=arm, seeds=seeds, planned={arm: seeds, "base": seeds})
    return made, asked


def concluded(others, second, question=QUESTION, **options):
    made, asked = second
    results = [run("base", 6), run("a", 35), *others, *made]
    return conclude(question, results, confirming=asked, **options)


LOSES, OPEN, WINS = run("b", 5), run("b", 7, start=2), run("b", 34)
TIES = attrs.evolve(QUESTION, margin=0.2)


@pytest.mark.parametrize(
    ("second", "other", "verdict", "words"),
    [
        (again(35, 5), OPEN, "SUPPORTED", "a, the best of 2 arms, beats base when retrained"),
        (again(5, 35), run("b", 0), "REFUTED", "retrained it loses to base, as every other arm does"),
        (again(5, 35), OPEN, "INCONCLUSIVE", "it loses to base; the numbers of b are inconclusive"),
        (again(5, 35), WINS, "CANDIDATE", "it loses to base; b also won, but was not confirmed"),
        (again(8, 5), WINS, "CANDIDATE", "the numbers neither show nor exclude an effect: +0.075"),
        (again(None, 5), OPEN, "CANDIDATE", "it wasn't confirmed: a-s1: failed"),
    ],
)
def test_the_second_trial_decides(second, other, verdict, words):
    conclusion = concluded([other], second)
    assert conclusion.verdict == verdict
    assert words in conclusion.reason
    assert conclusion.best_arm == "a"
    assert [c.arm for c in conclusion.comparisons] == ["a", "b"]
    assert conclusion.confirmed.comparison.arm == "a"


def test_a_tie_once_more_refutes_where_every_other_arm_ties_or_loses():
    second = again(6, 6, question=TIES)
    conclusion = concluded([run("b", 5)], second, TIES)
    assert conclusion.confirmed.comparison.outcome == "tie"
    assert (conclusion.verdict, conclusion.reason) == (
        "REFUTED",
        "a was the best of 2 arms, but retrained it ties with base, as every other arm does",
    )


def test_an_open_second_trial_says_what_would_settle_it_and_not_to_try_a_third_time():
    conclusion = concluded([WINS], again(8, 5))
    assert conclusion.settle.startswith("a minimum_effect to aim at: for a about ")
    assert concluded([WINS], again(5, 35)).settle == "score b and base again on fresh rollouts or seeds"


def test_seeds_that_were_lost_leave_a_candidate():
    made, asked = again(35, 5, seeds=3)
    conclusion = concluded([OPEN], (made[:-2], asked))
    assert conclusion.verdict == "CANDIDATE"
    assert "beats base when retrained, but only 2 of 3 repeats of a have a score" in conclusion.reason


@pytest.mark.parametrize("field", ["benchmark_hash", "verifier_hash"])
def test_tasks_or_verifiers_that_changed_between_arms_make_it_invalid(field):
    changed = conclude(QUESTION, [run("base", 5), run("a", 35, **{field: "other"})])
    assert (changed.verdict, changed.reason) == (
        "INVALID",
        "the benchmark or its verifier differs between a and base",
    )
    once_more = concluded([OPEN], again(35, 5, **{field: "other"}))
    assert once_more.verdict == "INVALID"
    assert "retrained it can't be compared: the benchmark or its verifier differs" in once_more.reason


def test_too_few_tasks_once_more_make_it_invalid():
    assert concluded([OPEN], again(9, 0, tasks=9)).verdict == "INVALID"


def test_fresh_runs_have_no_part_in_what_chose_the_winner():
    with_them = concluded([OPEN], again(5, 35, seeds=4))
    without = conclude(QUESTION, [run("base", 6), run("a", 35), OPEN])
    assert with_them.comparisons == without.comparisons
    assert with_them.checkpoints == without.checkpoints


def test_one_comparison_is_not_corrected_and_four_seeds_speak_of_the_recipe():
    one = concluded([OPEN], again(20, 5)).confirmed.comparison
    assert (one.p_corrected, one.claim) == (one.p_value, "checkpoint")
    made, asked = again(20, 5, seeds=4)
    varied = [
        attrs.evolve(run(r.arm, (20 if r.arm == "a" else 5) + r.repeat, repeat=r.repeat, purpose="confirm"))
        for r in made
    ]
    four = concluded([OPEN], (varied, asked)).confirmed.comparison
    assert (four.n_seeds, four.claim, four.outcome) == (4, "recipe", "win")


def test_another_entry_is_told_by_its_own_name():
    conclusion = concluded([OPEN], again(35, 5, question=FINAL))
    assert conclusion.confirmed.metric == "final.mean_reward"
    assert confirmed_line(conclusion).startswith(
        "a and base retrained with 1 seed each: a: final.mean_reward 0.125 -> 0.875"
    )


def test_tasks_that_were_trained_on_are_left_out_of_the_second_trial():
    solved = frozenset(f"t{i:02d}" for i in range(28))
    conclusion = concluded([OPEN], again(28, 0, question=FINAL), flagged=solved, allow_leak=True)
    assert conclusion.verdict == "SUPPORTED"
    rest = conclusion.without_flagged
    assert (rest.benchmark, len(rest.tasks), rest.verdict) == ("final", 28, "CANDIDATE")
    (comparison,) = rest.comparisons  # of what was tried once more: on the other entry nothing is left out
    assert (comparison.arm, comparison.n_tasks) == ("a", 12)


def test_a_choice_that_rests_on_tasks_that_were_trained_on_alone_is_no_candidate_without_them():
    every = frozenset(f"t{i:02d}" for i in range(40))
    rest = concluded([OPEN], again(35, 5), flagged=every).without_flagged
    assert rest.verdict == "INCONCLUSIVE"
    assert rest.reason.startswith("no arm could be compared with base: ")
    assert "every scored task is among the training rows" in rest.reason
    solved = frozenset(f"t{i:02d}" for i in range(30))
    rest = concluded([run("b", 30)], again(33, 30), TIES, flagged=solved).without_flagged
    assert rest.comparisons[0].outcome == "inconclusive"
    assert rest.verdict == "INCONCLUSIVE"


def test_a_second_trial_that_fell_short_is_told_apart_from_the_first():
    warnings = concluded([OPEN], again(None, 5)).warnings
    assert not any(line.startswith("a has no score that counts") for line in warnings)
    lost, asked = again(35, 5, seeds=3)
    assert "confirmation: a: " in "\n".join(
        concluded([OPEN], ([attrs.evolve(lost[0], status="cancelled"), *lost[1:]], asked)).warnings
    )


def test_untrained_weights_are_never_said_to_be_trained_anew():
    made, asked = again(35, None)
    untrained = attrs.evolve(asked.question, baseline="base_model")
    fresh = [
        attrs.evolve(one, evaluations=(attrs.evolve(run("a", 5).evaluations[0], step=0), *one.evaluations))
        for one in made
        if one.arm == "a"
    ]
    starts = attrs.evolve(run("a", 5).evaluations[0], step=0)
    chosen = [attrs.evolve(run(name, 35), evaluations=(starts, *run(name, 35).evaluations)) for name in "ab"]
    asked = attrs.evolve(asked, question=untrained, planned={"a": 1})
    conclusion = conclude(untrained, [*chosen, *fresh], confirming=asked)
    assert conclusion.reason == (
        "a, the best of 2 arms, beats base_model when retrained; "
        "enough to choose this checkpoint, not to expect the same of another run of its recipe"
    )
    assert confirmed_line(conclusion).startswith(
        "a retrained with 1 seed, compared with untrained weights: a: val.mean_reward 0.125 -> 0.875"
    )


def test_noise_holds_back_a_second_trial_on_the_same_entry_alone():
    scores = (21, 13, 13, 13)
    controls = [run("base-control", each, repeat=9 + n, purpose="control") for n, each in enumerate(scores)]
    noise = noise_floor(QUESTION, [run("base", 5), *controls])
    assert noise.largest == pytest.approx(0.4)
    same = concluded([OPEN, *controls], again(20, 5), noise=noise)
    assert (same.confirmed.comparison.outcome, same.verdict) == ("inconclusive", "CANDIDATE")
    assert "retrained its effect of +0.375 is within the noise: 5 equal runs of base" in same.reason
    assert "3 training runs of a and of base" in same.settle
    assert same.settling == Settling(arm="a", runs=3)
    other = concluded([OPEN, *controls], again(20, 5, question=FINAL), noise=noise)
    assert (other.confirmed.comparison.outcome, other.verdict) == ("win", "SUPPORTED")


def test_equal_runs_that_differ_as_much_as_the_arms_do_are_a_warning():
    def told(*solved, winner=35):
        _, asked = again(winner, 5, seeds=2)
        runs = [run("a", winner, repeat=n, purpose="confirm") for n in (1, 2)]
        runs += [run("base", each, repeat=n, purpose="confirm") for n, each in enumerate(solved, 1)]
        conclusion = concluded([OPEN], (runs, asked))
        return conclusion.verdict, [line for line in conclusion.warnings if "apart" in line]

    assert told(4, 6) == ("SUPPORTED", [])
    verdict, (warning,) = told(0, 35)
    assert verdict == "SUPPORTED"
    assert warning == (
        "confirmation: equal runs of base fall 0.875 apart, and a differs by +0.438: the next run may differ; "
        "4 training runs of each recipe would decide"
    )


def test_a_claim_about_recipes_has_how_far_runs_fall_apart_in_it():
    runs = [run(name, solved, repeat=n) for n in range(4) for name, solved in (("a", 36), ("base", n * 8))]
    conclusion = conclude(QUESTION, runs)
    assert conclusion.comparisons[0].claim == "recipe"
    assert not [line for line in conclusion.warnings if "apart" in line]


def test_no_interval_of_a_recipe_holds_a_difference_that_cannot_be():
    runs = [run("a", 40, repeat=n) for n in range(4)]
    runs += [run("base", 40 if n == 1 else 0, repeat=n) for n in range(4)]
    question = attrs.evolve(QUESTION, possible=lambda rewards: rewards)
    (comparison,) = conclude(question, runs).comparisons
    assert (comparison.claim, comparison.effect, comparison.high) == ("recipe", 0.75, 1.0)
    # Only one side differs by seed, so the error is sqrt(0.25 / 4) and t has 3 degrees of freedom: 0.75 - 3.182 * 0.25.
    assert comparison.low == pytest.approx(-0.0456, abs=1e-4)
    assert comparison.outcome == "inconclusive"


def test_what_is_said_of_several_runs_is_said_once():
    runs = [run(name, 35, repeat=n) for name in ("a", "base") for n in range(3)]
    rest = conclude(QUESTION, runs, flagged=set(runs[0].evaluations[0].task_rewards)).without_flagged
    assert rest.verdict == "INCONCLUSIVE"
    assert rest.reason == (
        "no arm could be compared with base: a-s0, a-s1, a-s2, base-s0, base-s1 and 1 more: every scored task is among the training rows"
    )
