"""Claims about recipes, whose unit is the training run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_stats.paired import paired_difference
from evsys_stats.power import detectable, runs_to_show
from evsys_stats.recipe import permutation_floor, recipe_claim, two_way_errors
from evsys_stats.student import two_sided_p


def claim(arm, baseline, **options):
    checkpoint = paired_difference(
        np.nanmean(arm, axis=0), np.nanmean(baseline, axis=0), sign=options.get("sign", 1.0), draws=400
    )
    return checkpoint, recipe_claim(checkpoint, arm, baseline, **options)


def scores(rng, runs, tasks, mean=0.0, by_seed=0.1):
    return mean + by_seed * rng.normal(size=(runs, 1)) + rng.normal(0, 0.3, size=(runs, tasks))


@pytest.mark.parametrize(("runs", "floor"), [(2, 1 / 3), (3, 0.10), (4, 2 / 70), (5, 2 / 252)])
def test_the_floor_of_a_permutation_of_seeds_is_what_is_published(runs, floor):
    assert permutation_floor(runs, runs) == pytest.approx(floor)


@pytest.mark.parametrize(
    ("runs", "level", "method"),
    [
        (4, 0.05, "seed permutation, two-way t"),
        (4, 0.025, "two-way t"),  # its floor of 0.029 could never reach the corrected level of two arms
        (5, 0.05 / 6, "seed permutation, two-way t"),
        (5, 0.05 / 7, "two-way t"),
    ],
)
def test_seeds_are_permuted_where_the_floor_allows(runs, level, method):
    rng = np.random.default_rng(0)
    _, found = claim(scores(rng, runs, 40), scores(rng, runs, 40), corrected_level=level)
    assert found.method == method


def test_a_model_that_was_not_trained_has_no_seeds_to_permute():
    rng = np.random.default_rng(0)
    _, found = claim(scores(rng, 8, 40), scores(rng, 1, 40))
    assert found.method == "two-way t"
    assert found.seeds.runs == (8,)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 1), (4, 4), (5, 6)]), st.floats(0, 0.4))
def test_a_recipe_is_never_known_better_than_its_runs_and_interval_and_p_agree(seed, runs, effect):
    rng = np.random.default_rng(seed)
    checkpoint, found = claim(scores(rng, runs[0], 30, effect), scores(rng, runs[1], 30))
    assert found.p_value >= checkpoint.p_value
    assert found.low <= checkpoint.low
    assert found.high >= checkpoint.high
    assert (found.p_value <= 0.05) == (found.low > 0 or found.high < 0)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([4, 5]))
def test_swapping_arms_mirrors_the_claim(seed, runs):
    rng = np.random.default_rng(seed)
    a, b = scores(rng, runs, 25, 0.1), scores(rng, runs, 25)
    one, two = claim(a, b)[1], claim(b, a)[1]
    assert one.p_value == pytest.approx(two.p_value)
    assert (one.low, one.high) == (pytest.approx(-two.high), pytest.approx(-two.low))


def test_less_is_better_turns_it_around():
    rng = np.random.default_rng(3)
    a, b = scores(rng, 5, 25, 0.3), scores(rng, 5, 25)
    one, two = claim(a, b)[1], claim(a, b, sign=-1.0)[1]
    assert (one.low, one.high, one.p_value) == pytest.approx((-two.high, -two.low, two.p_value))


def test_runs_that_differ_widely_are_no_evidence_for_the_next_one_however_many_tasks_there_are():
    """One of four runs collapsed: the four together are better for sure, the recipe isn't."""
    rng = np.random.default_rng(1)
    arm = np.array([0.9, 0.85, 0.88, -0.6])[:, None] + 0.05 * rng.normal(size=(4, 400))
    checkpoint, found = claim(arm, np.zeros((1, 400)))
    assert checkpoint.p_value < 0.01
    assert found.p_value > 0.1
    assert runs_to_show(found, found.effect) > 4


def test_tasks_that_a_run_did_not_score_do_not_shift_its_mean():
    """A run that lost its hardest tasks isn't better than the others for it."""
    rng = np.random.default_rng(2)
    hardness = np.linspace(-1, 1, 40)
    arm = hardness + 0.01 * rng.normal(size=(4, 40))
    whole, _ = two_way_errors(arm, np.zeros((1, 40)))
    arm[0, :8] = np.nan
    holes, seeds = two_way_errors(arm, np.zeros((1, 40)))
    assert seeds.by_seed < 1e-4
    assert holes == pytest.approx(whole, rel=0.05)


def test_equal_runs_give_no_zero_width():
    checkpoint, found = claim(np.zeros((5, 30)), np.zeros((5, 30)))
    assert found.p_value == 1.0
    assert (found.low, found.high) == (checkpoint.low, checkpoint.high)
    assert found.high > 0.05


def test_what_more_runs_would_show_is_what_simulation_shows():
    """The number of runs that `runs_to_show` names finds the effect in about four of five experiments."""
    rng = np.random.default_rng(5)
    arm = np.array([0.3, -0.1, 0.2, 0.0])[:, None] + 0.02 * rng.normal(size=(4, 200))
    _, found = claim(arm, np.zeros((1, 200)))
    effect = 0.2
    runs = runs_to_show(found, effect)
    assert detectable(found) > effect
    spread = float(np.std([0.3, -0.1, 0.2, 0.0], ddof=1))
    seen = 0
    for _ in range(400):
        new = effect + spread * rng.normal(size=(runs, 1)) + 0.02 * rng.normal(size=(runs, 200))
        total, seeds = two_way_errors(new, np.zeros((1, 200)))
        seen += two_sided_p(new.mean() / total**0.5, seeds.freedom) <= 0.05
    assert seen / 400 == pytest.approx(0.8, abs=0.08)
