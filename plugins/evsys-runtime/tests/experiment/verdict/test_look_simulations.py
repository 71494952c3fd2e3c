"""How often a question that has the answer no is SUPPORTED if it is asked ten times, and what asking it once costs.

Few simulated projects here, thousands with `-m slow`.
"""

import attrs
import numpy as np
import pytest

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.verdict.binary_pairs import mcnemar
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.spending import level_of_look

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    baseline="old",
)
LOOKS, TASKS = 10, 100
MOST_SIGMA = 3.0


def scored(rewards):
    values = {f"t{i:03d}": (float(reward),) for i, reward in enumerate(rewards)}
    return EvaluationResult(
        benchmark="val",
        split="val",
        step=10,
        status="completed",
        metrics={"mean_reward": MetricValue(value=float(np.mean(rewards)))},
        tasks=len(values),
        num_samples=1,
        scored=len(values),
        task_rewards=values,
        benchmark_hash="b",
        verifier_hash="v",
    )


def trained(name, rewards, repeat=0):
    return ArmResult(
        run_id=f"{name}-s{repeat}",
        arm=name,
        repeat=repeat,
        seed=repeat,
        status="completed",
        identity=name,
        evaluations=(scored(rewards),),
    )


def rewards_of(rng, chances, shift, *, partial):
    """Rewards of a run whose chance on each task is shifted: 0 or 1, or a part of ten."""
    shifted = np.clip(chances + shift, 0.0, 1.0)
    return rng.binomial(10, shifted) / 10 if partial else (rng.random(len(chances)) < shifted).astype(float)


def look(rng, chances, level, *, deviation, partial, runs=1):
    """Whether a look is SUPPORTED, and how much better the arm's models truly are than the baseline's."""
    shifts = rng.normal(0.0, deviation, (2, runs)) if deviation else np.zeros((2, runs))
    results = [
        trained(name, rewards_of(rng, chances, shift, partial=partial), repeat)
        for name, own in zip(("old", "new"), shifts, strict=True)
        for repeat, shift in enumerate(own)
    ]
    verdict = conclude(attrs.evolve(QUESTION, level=level), results).verdict
    arm, base = (np.mean([np.clip(chances + s, 0.0, 1.0).mean() for s in own]) for own in shifts[::-1])
    return verdict == "SUPPORTED", arm - base


def false_finds(sessions, *, deviation, partial, runs=1, level=lambda number: level_of_look(number, ALPHA)):
    """The share of sessions of ten looks in which something is SUPPORTED that isn't so; an agent stops at the first SUPPORTED."""
    rng = np.random.default_rng(20 + runs + int(100 * deviation) + partial)
    wrong = 0
    for _ in range(sessions):
        chances = rng.beta(1.0, 1.0, TASKS)
        for number in range(1, LOOKS + 1):
            supported, truth = look(
                rng, chances, level(number), deviation=deviation, partial=partial, runs=runs
            )
            if supported:
                wrong += runs > 1 or truth <= 0.0
                break
    return wrong / sessions


@pytest.mark.parametrize(
    "sessions", [pytest.param(20, id="few"), pytest.param(2000, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial credit"])
@pytest.mark.parametrize("deviation", [0.0, 0.04])
def test_ten_looks_at_equal_arms_support_a_false_claim_in_at_most_5_of_100(sessions, deviation, partial):
    """The claim is about a checkpoint: it is false if the models that were trained aren't better."""
    found = false_finds(sessions, deviation=deviation, partial=partial)
    room = MOST_SIGMA * (ALPHA * (1 - ALPHA) / sessions) ** 0.5 if sessions < 2000 else 0.0
    assert found <= ALPHA + room


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.0, 0.04])
def test_ten_looks_at_equal_recipes_support_one_in_at_most_5_of_100(deviation):
    assert false_finds(2000, deviation=deviation, partial=False, runs=4) <= ALPHA


@pytest.mark.slow
def test_ten_looks_at_the_whole_level_each_would_support_far_more():
    """So the simulation can tell."""
    assert false_finds(500, deviation=0.0, partial=False, level=lambda _number: ALPHA) > 2 * ALPHA


@pytest.mark.parametrize(("tasks", "effect"), [(200, 0.14), (500, 0.09), (1000, 0.063)])
def test_a_question_that_is_asked_once_needs_at_most_10_percent_more_tasks(tasks, effect):
    rng = np.random.default_rng(tasks)
    more, draws = round(1.1 * tasks), 4000
    power = {}
    for level, count in ((ALPHA, tasks), (level_of_look(1, ALPHA), more)):
        better = rng.binomial(count, 0.25 + effect / 2, draws)
        worse = rng.binomial(count - better, (0.25 - effect / 2) / (0.75 - effect / 2))
        power[level] = np.mean(
            [b > w and mcnemar(int(b), int(w)) <= level for b, w in zip(better, worse, strict=True)]
        )
    before, now = power[ALPHA], power[level_of_look(1, ALPHA)]
    assert 0.6 < before < 0.95
    assert now >= before - MOST_SIGMA * (2 * before * (1 - before) / draws) ** 0.5
