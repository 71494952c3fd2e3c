"""The power that a plan promises against simulated experiments whose truth is known: few here, 2,000 each with `-m slow`."""

import functools
import sys

import attrs
import numpy as np
import pytest
from simulated_experiments import trained

from evsys.types import RecipeRuns, RunDeviation
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.estimate.power_range import PlannedTest, Unknowns, power_range
from evsys_runtime.experiment.estimate.unknowns import ASSUMED_DEVIATION
from evsys_runtime.experiment.verdict import comparison as comparing
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.alpha_spending import level_of_look

LEVEL = level_of_look(1, ALPHA)
QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    baseline="old",
    level=LEVEL,
)
CORRELATIONS = (0.0, 0.28, 0.5, 0.7)
MOST_BELOW = 0.05
PARTS = 3
"""Checks of a task that give partial credit."""


@pytest.fixture(autouse=True)
def few_flips(monkeypatch):
    """Fewer random flips find a little less, so that a promise which holds with these holds with all."""
    monkeypatch.setattr(comparing, "DRAWS", 2000)


def rewards_of(rng, chances, tasks, correlation, *, partial):
    """Rewards of the runs of two arms, [2, runs, tasks], by the chances of the runs, [2, runs].

    A check has a difficulty in common for both arms, as often as their scores are correlated; else one for all runs of an arm, or one
    for each run.
    """
    runs, checks = chances.shape[1], PARTS if partial else 1
    shape = (2, runs, tasks, checks)
    single, of_arm = rng.random(shape), np.broadcast_to(rng.random((2, 1, tasks, checks)), shape)
    common = np.broadcast_to(rng.random((1, 1, tasks, checks)), shape)
    low, high = np.sort(chances.mean(axis=1))
    most = np.sqrt(
        low * (1 - high) / high / (1 - low)
    )  # chances that differ bound the correlation of outcomes
    kind, own = rng.random((2, 1, 1, tasks, checks))
    shared = kind < min(1.0, correlation / most)
    difficulty = np.where(shared, common, np.where(own < 0.5, of_arm, single))
    return (difficulty < chances[:, :, None, None]).mean(axis=3)


def supported(rng, question, effect, base, tasks, correlation, *, partial, runs=1, deviation=0.0):
    """Whether a simulated experiment supports its claim."""
    chances = np.array([[base], [base + effect]]) + rng.normal(0.0, deviation, (2, runs))
    rewards = rewards_of(rng, np.clip(chances, 0.01, 0.99), tasks, correlation, partial=partial)
    results = [
        trained(name, None, row, repeat)
        for name, own in zip(("old", "new"), rewards, strict=True)
        for repeat, row in enumerate(own)
    ]
    return conclude(question, results).verdict == "SUPPORTED"


@functools.cache
def promised(test, unknowns, margin=0.0):
    return power_range(test, unknowns, margin)


def draws(few):
    slow = (pytest.mark.slow, pytest.mark.timeout(1800))
    return pytest.mark.parametrize(
        "count", [pytest.param(few, id="few"), pytest.param(2000, id="many", marks=slow)]
    )


def record(record_property, low, power):
    """Keep a simulated power in the report, and show it with `-s`."""
    record_property("power", float(power))
    sys.stdout.write(f"power {power:.3f}, promised at least {low:.3f}\n")


def assert_promise_holds(low, power, count):
    """Few draws leave three standard errors of room."""
    room = 0.0 if count >= 2000 else 3 * (0.8 * 0.2 / count) ** 0.5
    assert power >= low - MOST_BELOW - room


@draws(20)
@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial"])
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_a_checkpoint_is_found_with_the_power_that_was_promised(
    margin, partial, correlation, count, record_property
):
    tasks = 100
    test = PlannedTest(units=tasks, runs=1, trained=True, level=LEVEL, may_be_exact=True)
    found = promised(test, Unknowns(), margin)
    effect = margin + found.safe
    question = attrs.evolve(QUESTION, margin=margin)
    rng = np.random.default_rng(1)
    power = np.mean(
        [
            supported(rng, question, effect, 0.5 - effect / 2, tasks, correlation, partial=partial)
            for _ in range(count)
        ]
    )
    record(record_property, found.low, power)
    assert_promise_holds(found.low, power, count)


@draws(20)
@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial"])
@pytest.mark.parametrize("deviation", [0.0, 0.04])
def test_a_recipe_is_found_with_the_power_that_was_promised(
    deviation, partial, correlation, count, record_property
):
    tasks, runs = 100, 4
    test = PlannedTest(units=tasks, runs=runs, trained=True, level=LEVEL, of_recipe=True)
    found = promised(test, Unknowns(deviation=(0.0, ASSUMED_DEVIATION)))
    rng = np.random.default_rng(2)
    power = np.mean(
        [
            supported(rng, QUESTION, found.safe, 0.5 - found.safe / 2, tasks, correlation,
                      partial=partial, runs=runs, deviation=deviation)
            for _ in range(count)
        ]
    )  # fmt: skip
    record(record_property, found.low, power)
    assert_promise_holds(found.low, power, count)


@draws(20)
@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial"])
def test_a_recipe_with_one_run_is_found_by_a_known_deviation_with_the_power_that_was_promised(
    partial, correlation, count, record_property
):
    tasks, deviation, freedom = 200, 0.04, 8.0
    scores = {f"r{i}": 0.5 + 0.01 * i for i in range(4)}
    known = RunDeviation(
        metric=QUESTION.name,
        standard_deviation=deviation,
        freedom=freedom,
        runs=9,
        recipes=(RecipeRuns(experiment_id="e", arm="a", scores=scores, sampling_variance=0.0),),
    )
    test = PlannedTest(
        units=tasks, runs=1, trained=True, level=LEVEL, of_recipe=True, known=(deviation, freedom), may_be_exact=True
    )  # fmt: skip
    found = promised(test, Unknowns(deviation=(0.03, 0.05)))
    question, rng = attrs.evolve(QUESTION, deviation=known), np.random.default_rng(3)
    power = np.mean(
        [
            supported(rng, question, found.safe, 0.5 - found.safe / 2, tasks, correlation,
                      partial=partial, deviation=deviation)
            for _ in range(count)
        ]
    )  # fmt: skip
    record(record_property, found.low, power)
    assert_promise_holds(found.low, power, count)


def test_the_effect_of_a_fixed_correlation_is_found_less_often_than_promised():
    """So the simulation can tell: 2.8 standard errors at a correlation of 0.5, as if nothing else were possible."""
    rng, tasks = np.random.default_rng(4), 100
    effect = 2.80 * 0.5 / tasks**0.5
    power = np.mean(
        [supported(rng, QUESTION, effect, 0.5 - effect / 2, tasks, 0.0, partial=False) for _ in range(400)]
    )
    assert power < 0.65
