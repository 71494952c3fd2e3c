"""Paired statistics against hand-made and simulated truths."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evsys_stats.binary_pairs import mcnemar, paired_proportions_p, tango_z
from evsys_stats.corrections import bonferroni
from evsys_stats.paired import paired_difference, wild_bootstrap


def test_mcnemar_matches_the_published_example():
    """18 against 6: the exact two-sided p is 0.0227, mid-p at 24 discordant tasks lies below it."""
    exact = 2 * sum(math.comb(24, i) for i in range(7)) / 2**24
    assert exact == pytest.approx(0.0227, abs=1e-4)
    assert mcnemar(18, 6) == pytest.approx(exact - math.comb(24, 6) / 2**24)


def test_mcnemar_without_discordant_tasks_is_one():
    assert mcnemar(0, 0) == 1.0


@pytest.mark.parametrize(("better", "worse", "n"), [(12, 2, 50), (0, 3, 30), (0, 0, 20), (25, 40, 300)])
@pytest.mark.parametrize("difference", [-0.2, -0.03, 0.03, 0.1, 0.4])
def test_the_score_test_maximises_the_likelihood_under_the_difference(better, worse, n, difference):
    """The share of tasks that only the baseline solves is found here by search over the trinomial likelihood."""
    shares = np.linspace(max(0.0, -difference) + 1e-9, (1.0 - difference) / 2 - 1e-9, 200_001)
    likelihood = (
        better * np.log(shares + difference)
        + worse * np.log(shares)
        + (n - better - worse) * np.log(np.maximum(1 - 2 * shares - difference, 1e-300))
    )
    share = shares[int(np.argmax(likelihood))]
    variance = n * (2 * share + difference - difference**2)
    expected = (better - worse - n * difference) / math.sqrt(variance)
    assert tango_z(better, worse, n, difference) == pytest.approx(expected, rel=1e-3)


def test_the_score_test_of_no_difference_is_mcnemars_without_correction():
    assert tango_z(12, 2, 50, 0.0) == pytest.approx(10 / math.sqrt(14))
    assert paired_proportions_p(12, 2, 50, 0.2) == pytest.approx(1.0)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_the_interval_of_binary_outcomes_holds_zero_exactly_where_the_test_does_not_reject_it(b, c, rest):
    arm = np.array([1.0] * b + [0.0] * c + [1.0] * (rest + 1))
    baseline = np.array([0.0] * b + [1.0] * c + [1.0] * (rest + 1))
    found = paired_difference(arm, baseline, binary=True)
    assert (found.p_value > 0.05) == (found.low <= 0.0 <= found.high)


def test_the_same_tiny_gain_on_every_task_is_no_certainty():
    """50 tasks that all gain 1e-4: one unseen task that loses would outweigh them all."""
    result = paired_difference(np.full(50, 0.5001), np.full(50, 0.5), largest=1.0)
    assert result.p_value > 0.9


@pytest.mark.parametrize("margin", [0.05, 0.1])
def test_a_few_equal_tasks_do_not_exclude_a_loss_of_the_margin(margin):
    """On 15 tasks a loss of 1 on one task in twenty mostly doesn't show at all."""
    result = paired_difference(np.ones(15), np.ones(15), largest=1.0)
    assert result.p_of(-margin) > 0.05
    assert result.p_of(margin) > 0.05


def test_bonferroni_matches_a_hand_calculation():
    assert bonferroni([0.01, 0.04, 0.3, 0.005]) == pytest.approx([0.04, 0.16, 1.0, 0.02])


def test_equal_scores_on_every_task_have_p_one_but_no_false_certainty():
    """20 equal tasks leave room for 1 - 0.05^(1/20) = 13.9 % of unseen tasks to differ."""
    result = paired_difference(np.ones(20), np.ones(20))
    assert (result.effect, result.p_value) == (0.0, 1.0)
    assert (result.low, result.high) == (pytest.approx(-0.139, abs=1e-3), pytest.approx(0.139, abs=1e-3))


def test_every_task_solved_is_significant():
    result = paired_difference(np.ones(60), np.zeros(60), binary=True)
    assert result.effect == 1.0
    assert result.p_value < 1e-10
    assert result.low > 0.87


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=40), st.integers(0, 5))
def test_swapping_arms_mirrors_the_result(scores, seed):
    rng = np.random.default_rng(seed)
    a, b = np.array(scores), rng.permutation(scores)
    one, two = paired_difference(a, b, draws=500), paired_difference(b, a, draws=500)
    assert one.effect == -two.effect
    assert one.p_value == two.p_value
    assert one.low == pytest.approx(-two.high)


@given(st.integers(0, 1000))
def test_fewer_is_better_mirrors_the_sign(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random(15), rng.random(15)
    assert paired_difference(a, b, sign=-1.0, draws=200).effect == pytest.approx(
        -paired_difference(a, b, draws=200).effect
    )


def test_few_clusters_use_every_sign_pattern_and_have_a_floor():
    differences, clusters = np.ones(40), np.repeat(np.arange(4), 10)
    assert wild_bootstrap(differences, clusters).p_value == pytest.approx(2 / 2**4)


@pytest.mark.parametrize("groups", [8, 20, 60])
def test_the_null_is_rejected_about_as_often_as_promised(groups):
    """Equal arms, unequal clusters: 400 simulated comparisons at 5 %; the bound leaves room for simulation error."""
    rng = np.random.default_rng(groups)
    sizes = rng.integers(1, 12, groups)
    clusters = np.repeat(np.arange(groups), sizes)
    rejected = 0
    for trial in range(400):
        effects = rng.normal(size=groups)[clusters] + rng.normal(size=len(clusters))
        rejected += wild_bootstrap(effects, clusters, draws=400, seed=trial).p_value <= 0.05
    assert 0.02 <= rejected / 400 <= 0.085


@pytest.mark.parametrize("groups", [2, 3])
def test_two_or_three_clusters_can_exclude_nothing(groups):
    """A point-like interval would call any difference a tie; here the interval is open."""
    differences = np.array([0.2, 0.4, 0.3, 0.5, 0.1, 0.3])
    result = wild_bootstrap(differences, np.arange(6) % groups)
    assert not (result.low >= -0.2 and result.high <= 0.2)


def test_task_order_changes_no_bit_once_tasks_are_sorted():
    rng = np.random.default_rng(1)
    values = rng.normal(0.2, 1, 40)
    assert wild_bootstrap(values).p_value == wild_bootstrap(values.copy()).p_value


def test_bonferroni_counts_comparisons_that_could_not_be_made():
    assert bonferroni([0.01], family=4) == pytest.approx([0.04])


@given(
    st.lists(st.sampled_from([-1.0, -0.5, -0.125, 0.0, 0.0, 0.0, 0.25, 1.0]), min_size=6, max_size=60),
    st.integers(0, 3),
)
@example([-0.125] * 6, 0)
def test_the_interval_holds_zero_exactly_where_the_test_does_not_reject_it(values, seed):
    result = wild_bootstrap(np.array(values), seed=seed, draws=1000)
    rejected = result.p_value <= 0.05
    outside = result.low > 0 or result.high < 0
    # Where hardly a task differs, or all do alike, the interval is wider than the test alone would make it, never narrower.
    widened = result.differing < 6 or result.standard_error < 1e-12
    assert rejected == outside or (rejected and widened)


@pytest.mark.parametrize(("n", "share"), [(60, 0.05), (60, 0.1), (60, 0.5), (20, 0.5)])
def test_intervals_hold_the_truth_as_often_as_they_say_also_where_few_tasks_differ(n, share):
    """Simulated truths: a share of the tasks differs, by -1, 0.5 or 1 with known odds; 95 % is promised."""
    rng = np.random.default_rng(3)
    values, odds = np.array([-1.0, 0.5, 1.0]), np.array([0.3, 0.3, 0.4])
    truth, runs = share * float(values @ odds), 200
    held = 0
    for seed in range(runs):
        differs = rng.random(n) < share
        result = wild_bootstrap(
            np.where(differs, rng.choice(values, size=n, p=odds), 0.0), seed=seed, draws=1000, largest=1.0
        )
        held += result.low <= truth <= result.high
    assert held / runs >= 0.91  # 95 % less two and a half standard errors of 200 runs


def test_one_task_that_differs_a_little_claims_no_more_than_none():
    none = paired_difference(np.zeros(60), np.zeros(60), largest=1.0)
    one = paired_difference(np.eye(60)[0] * 0.125, np.zeros(60), largest=1.0)
    assert one.low <= none.low + 0.125 / 60
    assert one.high >= none.high
