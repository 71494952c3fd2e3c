"""What a design can see, against simulation and against exact binomial sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_stats.paired import paired_difference
from evsys_stats.power import detectable, fewest_runs, smallest_p, tasks_to_place, tasks_to_show
from evsys_stats.student import t_quantile


def binomial_at_least(n, needed, share):
    return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(needed, n + 1))


def test_a_spread_that_is_evidence_gives_two_point_eight_standard_errors():
    rng = np.random.default_rng(0)
    paired = paired_difference(rng.random(200), rng.random(200), draws=200)
    assert detectable(paired) == pytest.approx(2.8016 * paired.standard_error, rel=1e-4)


@pytest.mark.parametrize(
    ("n", "binary", "needed"), [(30, True, 5), (30, False, 6), (200, True, 5), (12, False, 6)]
)
def test_tasks_that_all_agree_detect_what_the_design_detects_and_never_zero(n, binary, needed):
    """Mid-p McNemar is significant from 5 tasks in one direction on, sign flips from 6 on."""
    paired = paired_difference(np.ones(n), np.ones(n), binary=binary)
    assert paired.standard_error == 0.0
    found = detectable(paired)
    assert binomial_at_least(n, needed, found) == pytest.approx(0.8, abs=1e-6)


def test_one_task_that_differs_is_no_evidence_of_precision():
    """2.8 standard errors of one difference among 100 tasks are 0.028, an effect that p = 0.05 is out of reach for."""
    arm = np.zeros(100)
    arm[0] = 1.0
    paired = paired_difference(arm, np.zeros(100), binary=True)
    assert 2.8 * paired.standard_error < 0.03
    assert binomial_at_least(100, 5, detectable(paired)) == pytest.approx(0.8, abs=1e-6)


def test_the_floor_is_what_simulated_experiments_detect():
    """Differences in one direction on a share of 40 tasks: at the floor four in five experiments are significant."""
    floor = detectable(paired_difference(np.zeros(40), np.zeros(40), binary=True))
    rng = np.random.default_rng(1)
    found = [
        paired_difference((rng.random(40) < floor).astype(float), np.zeros(40), binary=True).p_value <= 0.05
        for _ in range(2000)
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("clusters", [2, 4, 5])
def test_too_few_clusters_detect_nothing_at_all(clusters):
    rng = np.random.default_rng(2)
    paired = paired_difference(rng.random(40), rng.random(40), np.arange(40) % clusters)
    assert smallest_p(paired) == 2.0 ** (1 - clusters) > 0.05
    assert detectable(paired) is None


def test_correction_for_many_arms_raises_what_can_be_detected():
    paired = paired_difference(np.zeros(60), np.zeros(60), binary=True)
    assert detectable(paired, 0.05 / 20) > detectable(paired, 0.05)
    assert detectable(paired_difference(np.zeros(6), np.zeros(6)), 0.05 / 20) is None


@settings(max_examples=40)
@given(st.integers(10, 300), st.floats(0.02, 0.5), st.booleans())
def test_the_tasks_that_would_show_an_effect_do_and_one_fewer_would_not(n, effect, binary):
    tasks = tasks_to_show(paired_difference(np.zeros(n), np.zeros(n), binary=binary), effect)
    same = paired_difference(np.zeros(tasks), np.zeros(tasks), binary=binary)
    fewer = paired_difference(np.zeros(tasks - 1), np.zeros(tasks - 1), binary=binary)
    assert detectable(same) <= effect + 1e-9
    assert detectable(fewer) is None or detectable(fewer) > effect - 1e-9


def test_half_the_effect_needs_four_times_the_tasks():
    rng = np.random.default_rng(3)
    paired = paired_difference(rng.random(100), rng.random(100), draws=200)
    assert tasks_to_show(paired, detectable(paired)) == 100
    assert tasks_to_show(paired, detectable(paired) / 2) == 400


def test_tasks_of_a_cluster_come_together():
    rng = np.random.default_rng(4)
    values = np.repeat(rng.random(20), 5)
    paired = paired_difference(values, np.full(100, 0.5), np.repeat(np.arange(20), 5))
    assert tasks_to_show(paired, detectable(paired) / 2) == pytest.approx(400, abs=5)


def test_an_interval_of_a_wanted_width_has_its_number_of_tasks():
    rng = np.random.default_rng(5)
    paired = paired_difference(rng.random(100), rng.random(100))
    half = (paired.high - paired.low) / 2
    assert tasks_to_place(paired, half / 3) == pytest.approx(900, abs=1)
    # 59 tasks that all agree leave less than 5 % of unseen ones open, the rule of three.
    assert tasks_to_place(paired_difference(np.zeros(20), np.zeros(20)), 0.05) == 59
    assert tasks_to_place(paired, 0.0) is None
    few = paired_difference(rng.random(6), rng.random(6), np.arange(6) % 2)
    assert math.isinf(few.high)
    assert tasks_to_place(few, 0.1) is None


@pytest.mark.parametrize(("effect", "runs"), [(0.3, 3), (0.1, 4), (0.08, 6), (0.01, None)])
def test_the_runs_that_show_an_effect_do_with_eighty_percent_power_and_fewer_do_not(effect, runs):
    """Two recipes with a deviation of 0.04 and no error by task, against simulated t tests."""

    def power(count):
        rng = np.random.default_rng(1)
        arms = rng.normal([[effect], [0.0]], 0.04, size=(20_000, 2, count))
        error = np.sqrt(arms.var(axis=2, ddof=1).sum(axis=1) / count)
        t = (arms[:, 0].mean(axis=1) - arms[:, 1].mean(axis=1)) / error
        return float((np.abs(t) >= t_quantile(0.975, 2 * (count - 1))).mean())

    found = fewest_runs(
        effect, by_run=2 * 0.04**2, by_task=0.0, freedom=lambda n: 2 * (n - 1), level=0.05, among=range(3, 9)
    )
    assert found == runs
    if runs is None:
        assert power(8) < 0.8
        return
    assert power(runs) > 0.77
    assert runs == 3 or power(runs - 1) < 0.82


def test_tasks_that_leave_too_much_open_need_more_tasks_and_no_number_of_runs_helps():
    asked = {"by_run": 1e-6, "freedom": lambda n: n - 1, "level": 0.05, "among": range(3, 9)}
    assert fewest_runs(0.1, by_task=0.05**2, **asked) is None
    assert fewest_runs(0.1, by_task=0.02**2, **asked) == 3
