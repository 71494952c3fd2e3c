"""The statistics of an audit beside closed forms and published values; `tests/statistics` compares whole experiments with scipy and R."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from evsys_runtime.audit.distributions import studentized_maximum, t_quantile, t_two_sided
from evsys_runtime.audit.metrics import task_metric
from evsys_runtime.audit.paired_tests import BinaryPairs, SignFlips
from evsys_runtime.audit.recipes import RecipeTest

# Student's t, two-sided: printed in every table.
T_TABLE = [
    (1, 0.05, 12.706205),
    (3, 0.05, 3.182446),
    (10, 0.01, 3.169273),
    (30, 0.05, 2.042272),
    (2.5, 0.05, 3.558),
]


@pytest.mark.parametrize(("freedom", "p", "t"), T_TABLE)
def test_students_t_is_that_of_the_tables(freedom, p, t):
    assert t_quantile(p, freedom) == pytest.approx(t, rel=2e-2 if freedom == 2.5 else 1e-6)
    assert t_two_sided(t_quantile(p, freedom), freedom) == pytest.approx(p)


def test_students_t_with_one_and_two_degrees_has_a_closed_form():
    for t in (0.01, 0.5, 1.0, 4.0, 300.0):
        assert t_two_sided(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-10)
        assert t_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)


@pytest.mark.parametrize(("count", "freedom"), [(1, 5), (3, 10), (10, 20), (2, 3)])
def test_the_studentized_maximum_modulus_is_exceeded_as_often_as_it_says(count, freedom):
    drawing = np.random.default_rng(1)
    errors = np.sqrt(drawing.chisquare(freedom, 400_000) / freedom)
    largest = np.abs(drawing.normal(size=(400_000, count))).max(axis=1) / errors
    exceeded = float((largest > studentized_maximum(count, freedom, 0.05)).mean())
    assert exceeded == pytest.approx(0.05, abs=5 * math.sqrt(0.05 * 0.95 / 400_000))


def test_the_studentized_maximum_modulus_of_one_is_students_quantile():
    assert studentized_maximum(1, 7, 0.05) == pytest.approx(t_quantile(0.05, 7), rel=1e-6)


def test_mcnemar_is_the_binomial_tail_that_all_outcomes_add_up_to():
    differences = np.array([1.0] * 27 + [-1.0] * 9 + [0.0] * 30)
    as_extreme = sum(math.comb(36, k) for k in range(37) if min(k, 36 - k) <= 9)
    assert BinaryPairs(differences).at_zero().value == pytest.approx(as_extreme / 2**36)


def test_the_score_test_is_mcnemars_without_continuity_at_no_difference():
    found = BinaryPairs(np.array([1.0] * 27 + [-1.0] * 9 + [0.0] * 30)).elsewhere(1e-12).value
    assert found == pytest.approx(math.erfc(18 / 6 / math.sqrt(2)), rel=1e-6)


def test_the_score_test_rejects_by_the_likeliest_probabilities():
    """Its variance is that of the likeliest probabilities with this difference, found here by looking at a grid of all."""
    better, worse, n, mean = 12, 3, 40, 0.35
    grid = np.linspace(1e-9, (1 - mean) / 2 - 1e-9, 2_000_001)
    likelihood = better * np.log(grid + mean) + worse * np.log(grid)
    likelihood += (n - better - worse) * np.log(1 - mean - 2 * grid)
    likeliest = float(grid[likelihood.argmax()])
    z = (better - worse - n * mean) / math.sqrt(n * (2 * likeliest + mean * (1 - mean)))
    test = BinaryPairs(np.array([1.0] * better + [-1.0] * worse + [0.0] * (n - better - worse)))
    assert test.elsewhere(mean).value == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), rel=1e-5)


def test_flipped_signs_of_few_clusters_are_all_looked_at():
    values = {f"t{i}": value for i, value in enumerate([0.5, 0.25, 0.125, 1.0, -0.25, 0.5, 0.75])}
    data, hits = [*values.values()], 0
    t = _t(data)
    for signs in itertools.product((-1, 1), repeat=7):
        hits += _t([s * v for s, v in zip(signs, data, strict=True)]) >= t * (1 - 1e-9)
    found = SignFlips(values, {}).at_zero()
    assert (found.value, found.error) == (hits / 128, 0.0)


def _t(data):
    mean = sum(data) / len(data)
    spread = math.sqrt(sum((v - mean) ** 2 for v in data) / (len(data) - 1) / len(data))
    return abs(mean) / spread


def test_drawn_p_values_differ_by_less_than_the_error_they_state():
    drawing = np.random.default_rng(3)
    for _ in range(20):
        data = {f"t{i}": float(v) for i, v in enumerate(drawing.normal(0.15, 1.0, 60))}
        flips = SignFlips(data, {}, draws=10_000)
        sums = np.array([*data.values()])
        signs = drawing.choice([-1.0, 1.0], (10_000, 60))
        t = np.array([_t(row) for row in signs * sums])
        other = (int((t >= _t(sums) * (1 - 1e-9)).sum()) + 1) / 10_001
        found = flips.at_zero()
        assert abs(found.value - other) <= found.error
        assert found.error < 0.05


def test_runs_are_permuted_exactly():
    arm = np.array([[0.9] * 12, [0.8] * 12, [0.7] * 12, [0.95] * 12])
    base = np.array([[0.1] * 12, [0.3] * 12, [0.2] * 12, [0.15] * 12])
    values = {f"t{i}": float(arm.mean() - base.mean()) for i in range(12)}
    test = RecipeTest(SignFlips(values, {}), arm, base, [*values], sign=1.0, level=0.05, largest=1.0)
    assert test.at_zero().value == pytest.approx(2 / math.comb(8, 4))


@pytest.mark.parametrize(
    ("name", "rewards", "value"),
    [
        ("mean_reward", (0.25, 0.75), 0.5),
        ("pass_rate", (1.0, 0.0, 1.0, 0.5), 0.5),
        ("pass@2", (1.0, 0.0, 0.0), 2 / 3),
        ("pass^2", (1.0, 1.0, 0.0), 1 / 3),
        ("pass@1", (0.0,), 0.0),
    ],
)
def test_metrics_of_a_task_follow_from_their_definition(name, rewards, value):
    assert task_metric(name, {}).value(rewards) == pytest.approx(value)


def test_the_best_of_k_is_the_mean_over_all_choices():
    rewards = [0.1, 0.9, 0.4, 0.4, 0.7]
    chosen = [max(each) for each in itertools.combinations(rewards, 3)]
    entry = {"metrics": [{"kind": "evsys-verifiers-std/best_of_k", "params": {"k": 3}}]}
    assert task_metric("best_of_k", entry).value(rewards) == pytest.approx(sum(chosen) / len(chosen))


def test_a_metric_of_a_plugin_is_not_guessed_at():
    assert task_metric("mean_reward", {"metrics": [{"kind": "mine/mean_reward", "params": {}}]}) is None
    assert task_metric("share_solved", {}) is None


def test_a_metric_of_too_few_samples_has_no_value():
    assert task_metric("pass@4", {}).value((1.0, 0.0)) is None
