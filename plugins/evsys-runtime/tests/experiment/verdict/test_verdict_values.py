"""Each statistic against the value that scipy or statsmodels gives for the same data; see make_verdict_values.py."""

import json
from pathlib import Path

import numpy as np
import pytest

from evsys_stats.binary_pairs import mcnemar
from evsys_stats.corrections import bonferroni
from evsys_stats.paired import (
    Paired,
    Seeds,
    paired_difference,
    wild_bootstrap,
)
from evsys_stats.power import detectable
from evsys_stats.recipe import seed_permutation, two_way_errors
from evsys_stats.student import t_quantile, two_sided_p

VALUES = json.loads(Path(__file__).with_name("verdict_values.json").read_text(encoding="utf-8"))
DIFFERENCES = np.array([0.31, -0.12, 0.5, 0.25, 0.0, -0.4, 0.75, 0.1, 0.33, -0.05])
CLUSTERED = np.array([0.2, 0.5, -0.1, 0.9, 0.4, 0.3, 0.6, -0.2, 0.1, 0.8, 0.05, 0.7, 0.45, -0.3, 0.15, 0.35])
LABELS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 7])
SEEDS_A = np.array([0.71, 0.64, 0.69, 0.75, 0.68])
SEEDS_B = np.array([0.62, 0.66, 0.58, 0.61, 0.65])


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        *(case for case in VALUES["mcnemar_exact"] if case[0] + case[1] >= 25),
        *(case for case in VALUES["mcnemar_mid"] if case[0] + case[1] < 25),
    ],
)
def test_mcnemar_is_exact_from_25_tasks_that_differ_on_and_mid_p_below(better, worse, p):
    assert mcnemar(better, worse) == pytest.approx(p, rel=1e-12)


def test_bonferroni():
    assert bonferroni([0.01, 0.04, 0.03, 0.005, 0.2, 0.011]) == pytest.approx(VALUES["bonferroni"], rel=1e-12)


@pytest.mark.parametrize(("mean", "p"), VALUES["wild"].items())
def test_the_wild_bootstrap_of_ten_tasks_is_scipys_permutation_of_signs(mean, p):
    """A null other than 0 is the same test of differences less that mean; equivalence is two of these."""
    assert wild_bootstrap(DIFFERENCES - float(mean)).p_value == pytest.approx(p, rel=1e-12)


def test_its_interval_ends_where_scipys_permutation_begins_to_reject():
    found = wild_bootstrap(DIFFERENCES)
    assert (found.low, found.high) == pytest.approx(VALUES["wild_interval"], abs=2e-3 * found.standard_error)


@pytest.mark.parametrize(("mean", "p"), VALUES["wild_clustered"].items())
def test_the_wild_bootstrap_of_clusters_is_scipys_permutation_of_their_signs(mean, p):
    assert wild_bootstrap(CLUSTERED - float(mean), LABELS).p_value == pytest.approx(p, rel=1e-12)


def test_the_clustered_error_is_that_of_statsmodels():
    found = wild_bootstrap(CLUSTERED, LABELS).standard_error
    assert found == pytest.approx(VALUES["clustered_error"], rel=1e-12)


@pytest.mark.parametrize(("shift", "p"), VALUES["permutation"].items())
def test_the_permutation_of_seeds_is_scipys(shift, p):
    assert seed_permutation(SEEDS_A, SEEDS_B, float(shift)) == pytest.approx(p, rel=1e-12)


def test_two_way_errors_are_those_of_statsmodels_without_their_bias():
    """statsmodels divides by S where the unbiased variance of S runs has S - 1, and subtracts the squared residuals with the
    effects of runs and tasks still in them.
    """
    scores = np.random.default_rng(7).random((5, 12))
    total, seeds = two_way_errors(scores, np.zeros((1, 12)))
    by_run, by_task, both = (VALUES["two_way"][name] for name in ("by_run", "by_task", "both"))
    assert seeds.by_seed == pytest.approx(by_run * 5 / 4, rel=1e-9)
    assert seeds.by_task == pytest.approx(by_task * 12 / 11, rel=1e-9)
    single = (by_run + by_task - both) - by_run / 12 - by_task / 5
    assert total == pytest.approx(
        max(seeds.by_seed, seeds.by_task, seeds.by_seed + seeds.by_task - single * 5 / 4 * 12 / 11), rel=1e-9
    )


@pytest.mark.parametrize(("t", "freedom", "p"), VALUES["t"])
def test_students_tails(t, freedom, p):
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=1e-9)
    assert two_sided_p(-t, freedom) == two_sided_p(t, freedom)


@pytest.mark.parametrize(("probability", "freedom", "t"), VALUES["t_quantile"])
def test_students_quantiles(probability, freedom, t):
    assert t_quantile(probability, freedom) == pytest.approx(t, rel=1e-9)


def test_what_five_seeds_an_arm_detect_is_what_the_noncentral_t_says():
    seeds = Seeds(by_seed=2 / 5, by_task=0.0, freedom=8.0, runs=(5, 5))
    claim = Paired(
        effect=0.0, low=-1.0, high=1.0, p_value=1.0, standard_error=(2 / 5) ** 0.5, n=1000, clusters=1000,
        method="two-way t", differing=1000, seeds=seeds,
    )  # fmt: skip
    assert detectable(claim) == pytest.approx(VALUES["power_t"], rel=0.01)


def test_a_tie_is_two_tests_that_reject_both_ends():
    """Equivalence within ±m: the interval lies inside exactly where the test rejects -m and m."""
    rng = np.random.default_rng(4)
    for minimum in (0.1, 0.2, 0.3, 0.5):
        values = rng.normal(0.02, 0.6, 40)
        found = paired_difference(values, np.zeros(40))
        rejected = [wild_bootstrap(values - end).p_value <= 0.05 for end in (-minimum, minimum)]
        assert (-minimum <= found.low and found.high <= minimum) == all(rejected)
