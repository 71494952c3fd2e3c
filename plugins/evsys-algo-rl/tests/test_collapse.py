"""Detectors: each is silent on a healthy run, and speaks up where its own trouble lasts."""

import math

import numpy as np
import pytest

from evsys_algo_rl.collapse import REWARD_WINDOW, WINDOW, CollapseDetector
from evsys_algo_rl.flat import FlatSteps

HEALTHY = {
    "reward": 0.6,
    "entropy": 0.4,
    "kl_sampler_trainer": 1e-3,
    "length_mean": 40.0,
    "truncated_share": 0.05,
    "repetition": 0.1,
    "zero_variance_share": 0.2,
}


def found(steps, detector=None):
    detector = detector or CollapseDetector()
    return [detector.add({**HEALTHY, **step}) for step in steps]


def said(steps, detector=None):
    return [None if one is None else one.reason for one in found(steps, detector)]


def test_a_healthy_run_is_left_in_peace():
    assert said([{"reward": 0.1 + 0.02 * n} for n in range(40)]) == [None] * 40


LONG = REWARD_WINDOW + WINDOW - 1


@pytest.mark.parametrize(
    ("trouble", "lasting", "told"),
    [
        ({"entropy": 0.0, "reward": 0.2}, REWARD_WINDOW, "makes no choices any more"),
        ({"kl_sampler_trainer": 2.0}, WINDOW, "sampler and trainer drift apart"),
        ({"length_mean": 200.0, "truncated_share": 0.9}, WINDOW, "answers grew from 40 to 200 tokens"),
        ({"repetition": 0.95, "reward": 0.2}, REWARD_WINDOW, "answers repeat themselves: 95%"),
        ({"reward": 0.1}, LONG, "the reward fell from 0.6 to 0.1"),
    ],
)
def test_trouble_that_lasts_is_told(trouble, lasting, told):
    heard = said([{}] * 10 + [trouble] * lasting)
    assert heard[: 10 + WINDOW - 1] == [None] * (10 + WINDOW - 1)
    assert told in heard[-1]


@pytest.mark.parametrize(
    ("trouble", "lasted"),
    [
        ({"kl_sampler_trainer": math.nan}, 1),
        ({"kl_sampler_trainer": 2.0}, WINDOW),
        ({"reward": 0.1}, LONG),
    ],
)
def test_a_collapse_says_for_how_many_steps_it_was_seen(trouble, lasted):
    heard = found([{}] * 10 + [trouble] * lasted)
    assert heard[-1].lasted == lasted


def passing(rng, groups, size, rate):
    """The share of rollouts that pass in a step: tasks differ in how hard they are."""
    hard = rng.beta(2 * rate, 2 * (1 - rate), size=groups)
    return float(rng.binomial(size, hard).sum()) / (groups * size)


SPARSE = [
    (1, 8, 0.1),
    (2, 4, 0.1),
    (1, 4, 0.3),
    (4, 8, 0.05),
    (8, 8, 0.02),
    (8, 16, 0.05),
    (32, 8, 0.01),
    (32, 8, 0.05),
]


@pytest.mark.parametrize("grid", SPARSE)
def test_rewards_that_are_noise_about_a_constant_stop_no_run(grid):
    rng = np.random.default_rng(0)
    runs = [said([{"reward": passing(rng, *grid)} for _ in range(100)]) for _ in range(100)]
    assert sum(any(found) for found in runs) <= 1


@pytest.mark.parametrize(
    ("grid", "after"), [((4, 8, 0.6), 0.1), ((8, 8, 0.5), 0.0), ((32, 8, 0.3), 0.05), ((8, 16, 0.9), 0.3)]
)
def test_a_reward_that_really_fell_is_told_however_noisy_it_is(grid, after):
    groups, size, _ = grid
    missed = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        before = [{"reward": passing(rng, *grid)} for _ in range(30)]
        fallen = [{"reward": passing(rng, groups, size, after) if after else 0.0} for _ in range(40)]
        found = said([*before, *fallen])
        assert not any(found[:30])
        missed += not any("the reward fell" in told for told in found if told)
    assert missed <= 1


@pytest.mark.parametrize("level", [1e-3, 0.1])
def test_a_divergence_that_is_noise_about_a_constant_stops_no_run(level):
    rng = np.random.default_rng(0)
    runs = [
        said([{"kl_sampler_trainer": level * float(np.exp(1.5 * rng.normal()))} for _ in range(100)])
        for _ in range(100)
    ]
    assert sum(any(found) for found in runs) <= 1


def test_a_policy_that_is_certain_stays_at_its_best_though_its_tasks_differ():
    rng = np.random.default_rng(0)
    runs = [
        said(
            [
                {"entropy": 0.0, "repetition": 0.9, "reward": float((rng.random(8) < 0.5).mean())}
                for _ in range(100)
            ]
        )
        for _ in range(100)
    ]
    assert sum(any(found) for found in runs) <= 1


@pytest.mark.parametrize("trouble", [{"entropy": 0.0}, {"kl_sampler_trainer": 2.0}, {"reward": 0.0}])
def test_a_single_odd_step_is_nothing(trouble):
    assert said([{}] * 10 + [trouble] * (WINDOW - 1) + [{}] * 10) == [None] * (19 + WINDOW)


def test_numbers_that_are_none_are_told_at_once():
    assert said([{}, {"kl_sampler_trainer": math.nan}])[-1] == "kl_sampler_trainer is nan"


def test_a_policy_that_is_certain_and_right_has_learnt_its_task():
    assert said([{"entropy": 0.0, "reward": 1.0, "repetition": 0.9}] * 20) == [None] * 20


def test_what_was_seen_goes_on_from_a_checkpoint():
    steps = [{}] * 10 + [{"reward": 0.0}] * LONG
    detector = CollapseDetector()
    said(steps[:12], detector)
    resumed = CollapseDetector()
    resumed.load_state(detector.state())
    told = said(steps[12:], resumed)[-1]
    assert told == said(steps)[-1] == "the reward fell from 0.6 to 0"


def test_flat_steps_are_counted_in_a_row():
    flat = FlatSteps(3)
    found = [flat.add({"zero_variance_share": share, "reward": 0.0}) for share in (1, 1, 0.9, 1, 1, 1)]
    assert found[:5] == [None] * 5
    assert "in the last 3 steps no group had rewards that differ (their mean is 0)" in found[5]
    assert "too hard" in found[5]


def test_a_solved_task_is_told_as_that():
    assert "the tasks are solved" in FlatSteps(1).add({"zero_variance_share": 1.0, "reward": 1.0})
