"""Advantages against their definitions, written out with plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_algo_rl.advantages import ESTIMATORS, advantages, is_flat
from evsys_algo_rl.params import ADVANTAGES

REWARDS = st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0, -1.0, 3.5]), max_size=6)
GROUPS = st.lists(REWARDS, min_size=1, max_size=5)


def mean(values):
    return sum(values) / len(values)


def std(values):
    return math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))


def expected(estimator, groups):
    """The definitions of the papers, one reward after the other."""
    found = []
    centred = [r - mean(g) for g in groups if len(set(g)) > 1 for r in g]
    everything = centred + [0.0 for g in groups if len(set(g)) <= 1 for _ in g]
    for group in groups:
        row = []
        for i, reward in enumerate(group):
            if estimator == "none":
                row.append(reward)
            elif len(set(group)) == 1:
                row.append(0.0)
            elif estimator == "rloo":
                row.append(reward - mean([other for j, other in enumerate(group) if j != i]))
            else:
                divisor = {
                    "mean": 1.0,
                    "mean_std": std(group) + 1e-6,
                    "batch_std": std(everything) + 1e-6 if everything else 1.0,
                }[estimator]
                row.append((reward - mean(group)) / divisor)
        found.append(row)
    return found


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=100, deadline=None)
@given(groups=GROUPS)
def test_an_advantage_is_what_its_paper_says(estimator, groups):
    found = advantages(estimator, [np.array(group) for group in groups])
    for ours, theirs in zip(found, expected(estimator, groups), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name != "none"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, 1e9])
def test_equal_rewards_give_exactly_zero(estimator, reward):
    found = advantages(estimator, [np.full(3, reward), np.full(1, reward), np.zeros(0)])
    assert [group.tolist() for group in found] == [[0.0, 0.0, 0.0], [0.0], []]


def test_leave_one_out_is_the_centred_reward_times_a_factor():
    groups = [np.array([1.0, 0.0, 0.0, 0.5])]
    np.testing.assert_allclose(advantages("rloo", groups)[0], advantages("mean", groups)[0] * 4 / 3)


def test_a_group_is_flat_where_nothing_can_be_compared():
    assert is_flat("mean", np.array([0.3, 0.3]))
    assert is_flat("mean", np.array([0.3, 0.1 + 0.2]))
    assert is_flat("mean", np.array([0.3]))
    assert not is_flat("mean", np.array([0.3, 0.4]))
    assert is_flat("none", np.array([0.0, 0.0]))
    assert not is_flat("none", np.array([1.0, 1.0]))


def test_the_params_offer_every_estimator():
    assert tuple(ESTIMATORS) == ADVANTAGES


def test_an_unknown_estimator_is_named():
    with pytest.raises(ValueError, match="no advantage 'median'; choose one of mean, "):
        advantages("median", [np.zeros(2)])
