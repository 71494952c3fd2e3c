"""Corrections over the arms of an experiment: Westfall & Young where sign flips are shared, Bonferroni elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_stats.claims import boundaries, outcome_p
from evsys_stats.corrections import bonferroni, corrected, westfall_young
from evsys_stats.paired import Pair, paired_differences


def family(rng, arms=5, tasks=40, shift=0.3, names=True, sparse=False, draws=500):
    """Comparisons of arms that share a baseline on the same tasks."""
    hardness, base = rng.normal(size=tasks), rng.normal(size=tasks)
    scores = [hardness + base * (i % 2) + shift * i + 0.5 * rng.normal(size=tasks) for i in range(arms)]
    if sparse:
        scores[0] = np.where(np.arange(tasks) < 3, scores[0], hardness + base)
    named = tuple(f"t{i}" for i in range(tasks)) if names else None
    return paired_differences(
        [Pair(arm=arm, baseline=hardness + base, tasks=named) for arm in scores], draws=draws
    )


def p_values(found):
    return [one.p_value for one in found]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 8),
    st.sampled_from([11, 40]),
    st.floats(0, 0.5),
    st.integers(0, 3),
    st.booleans(),
)
def test_westfall_young_never_exceeds_bonferroni_nor_falls_below_the_single_p_values(
    seed, arms, tasks, shift, unmade, sparse
):
    found = family(np.random.default_rng(seed), arms, tasks, shift, sparse=sparse)
    raw, planned = p_values(found), arms + unmade
    made = corrected(found, raw, family=planned, level=0.05, at_zero=True)
    assert made.method == "westfall-young"
    for mine, theirs, single in zip(made.p_values, bonferroni(raw, family=planned), raw, strict=True):
        assert single <= mine + 1e-12
        assert mine <= theirs + 1e-9


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 6),
    st.sampled_from([11, 40]),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.2]),
)
def test_an_interval_leaves_out_no_effect_exactly_if_the_corrected_p_value_is_significant(
    seed, arms, tasks, unmade, margin
):
    found = family(np.random.default_rng(seed), arms, tasks)
    tested = [outcome_p(one, margin) for one in found]
    made = corrected(found, tested, family=arms + unmade, level=0.05, at_zero=margin == 0)
    assert made.single_level >= 0.05 / (arms + unmade)
    for one, p in zip(found, made.p_values, strict=True):
        low, high = one.interval(made.single_level, boundaries(margin))
        if margin == 0:
            assert low <= one.low <= one.high <= high
        assert (low > margin or high < -margin) is (p <= 0.05)


def test_the_smallest_p_value_of_all_arms_decides():
    """Four sign patterns and two comparisons that never agree: all four have a smallest p-value of at most 1/2."""
    flipped = np.array([[0.25, 1.0], [0.5, 0.75], [0.75, 0.5], [1.0, 0.25]])
    made, level = westfall_young(flipped, [0.25, 0.75])
    assert made == [0.5, 1.0]
    assert level == pytest.approx(0.05)  # nothing comes below 0.25 by chance
    assert bonferroni([0.25, 0.75]) == [0.5, 1.0]


def test_comparisons_that_agree_entirely_count_as_one():
    flipped = np.repeat(np.arange(1, 101)[:, None] / 100, 3, axis=1)
    made, level = westfall_young(flipped, [0.04, 0.04, 0.04])
    assert made == pytest.approx([0.04] * 3)
    assert level == pytest.approx(0.05)
    one_lost, narrower = westfall_young(flipped, [0.04, 0.04, 0.04], family=4)
    assert one_lost == pytest.approx([0.08] * 3)
    assert narrower == pytest.approx(0.025)  # so much for the patterns, and as much for the missing one


@pytest.mark.parametrize(
    ("named", "at_zero", "method"),
    [(True, True, "westfall-young"), (False, True, "bonferroni"), (True, False, "bonferroni")],
)
def test_bonferroni_corrects_where_sign_flips_are_not_shared(named, at_zero, method):
    found = family(np.random.default_rng(0), names=named)
    made = corrected(found, p_values(found), family=5, level=0.05, at_zero=at_zero)
    assert made.method == method
    assert made.single_level == pytest.approx(0.01) if method == "bonferroni" else made.single_level > 0.01


def test_arms_on_different_tasks_do_not_share_sign_flips():
    one, two = (family(np.random.default_rng(seed), arms=1) for seed in (0, 1))
    (other,) = paired_differences(
        [Pair(arm=np.arange(40.0), baseline=np.zeros(40), tasks=tuple(f"u{i}" for i in range(40)))], draws=500
    )
    assert corrected([*one, *two], [0.01, 0.02], family=2, level=0.05, at_zero=True).method == (
        "westfall-young"
    )
    assert corrected([*one, other], [0.01, 0.02], family=2, level=0.05, at_zero=True).method == "bonferroni"


def test_a_single_comparison_is_not_corrected():
    found = family(np.random.default_rng(0), arms=1)
    made = corrected(found, p_values(found), family=1, level=0.05, at_zero=True)
    assert (made.method, made.single_level, list(made.p_values)) == (None, 0.05, p_values(found))
