"""How often the guard's test raises an alarm over a whole run whose gap doesn't grow, and how soon where it does."""

import math

import numpy as np
import pytest

from evsys_algo_rl.gap_test import GapTest

LEVEL = 0.05
START = 5
TRIALS = [
    pytest.param(60, id="few"),
    pytest.param(2000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
]


def alarm(rng, *, margin=0.0, growth=0.0, steps=50, groups=8, size=4, tasks=40, until=None, benchmark=0):
    """The step of the alarm in a simulated run, None where there is none.

    The truth rises from 0.2 to 0.6 over the run, tasks differ in both scores, and each is drawn in turn from seeded permutations, as in a run.
    From the end of the start, or step `until`, the expected gap is larger by `growth`. With a `benchmark` so many other tasks, drawn anew at each step, tell
    the truth instead of the same rollouts.
    """
    test, order = GapTest(LEVEL, margin), []
    hardness, favour = rng.uniform(-0.15, 0.15, tasks), rng.uniform(-0.2, 0.2, tasks)
    hardness, favour = hardness - hardness.mean(), favour - favour.mean()
    for step in range(steps):
        while len(order) < groups:
            order += rng.permutation(tasks).tolist()
        drawn, order = order[:groups], order[groups:]
        grown = growth if step >= max(START, until or 0) else 0.0
        truth = 0.2 + 0.4 * step / steps + hardness[drawn]
        reward = truth + favour[drawn] * 0.5 + grown
        seen = [(rng.random((groups, size)) < chance[:, None]).mean(axis=1) for chance in (reward, truth)]
        if benchmark:
            other = 0.2 + 0.4 * step / steps + rng.choice(hardness, benchmark)
            scores, parts = rng.random(benchmark) < other, min(groups, benchmark)
            seen = [[values[part::parts].mean() for part in range(parts)] for values in (seen[0], scores)]
            seen = [np.array(values) for values in seen]
        (test.add_start if step < START else test.add)(seen[0] - seen[1])
        if step >= START and test.alarm:
            return step
    return None


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize(
    "run",
    [
        {},
        {"tasks": 8},
        {"tasks": 400},
        {"groups": 32, "size": 8, "steps": 25},
        {"margin": 0.05, "growth": 0.05},
        {"margin": 0.1, "growth": 0.1, "groups": 32, "steps": 25},
        {"growth": -0.1},
        {"benchmark": 16},
        {"benchmark": 4, "margin": 0.05, "growth": 0.05},
    ],
    ids=str,
)
def test_without_growth_beyond_the_margin_at_most_5_of_100_runs_have_an_alarm(run, trials):
    rng = np.random.default_rng(11)
    found = np.mean([alarm(rng, **run) is not None for _ in range(trials)])
    print(f"{run}: {found:.4f} of {trials}")  # noqa: T201 - the rate is what somebody runs this for
    assert found <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / trials)


@pytest.mark.parametrize(
    ("run", "least", "within"),
    [
        ({"growth": 0.35}, 0.9, 25),
        ({"growth": 0.35, "margin": 0.05}, 0.75, 30),
        ({"growth": 0.35, "benchmark": 16}, 0.8, 30),
        ({"growth": 0.35, "groups": 32, "steps": 25}, 1.0, 5),
        ({"growth": 0.35, "groups": 32, "steps": 40, "until": 20}, 1.0, 10),
    ],
    ids=str,
)
def test_a_growing_gap_is_found(run, least, within):
    rng = np.random.default_rng(12)
    found = [alarm(rng, **run) for _ in range(30)]
    seen = [step for step in found if step is not None]
    assert len(seen) / len(found) >= least
    assert np.median(seen) - max(START, run.get("until", 0)) <= within


def test_the_lower_bound_of_the_growth_holds():
    rng, wrong = np.random.default_rng(13), 0
    for _ in range(60):
        test = GapTest(LEVEL)
        test.add_start(rng.normal(0.1, 0.1, 40).clip(-1, 1))
        test.add(rng.normal(0.4, 0.1, 200).clip(-1, 1))
        wrong += test.growth_low > 0.3
        assert test.growth_low > 0.1
    assert wrong / 60 <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 60)
