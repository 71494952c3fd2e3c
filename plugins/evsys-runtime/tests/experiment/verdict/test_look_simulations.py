"""How often a question that has the answer no is SUPPORTED if it is asked ten times, and what asking it once costs.

Few simulated projects here, thousands with `-m slow`.
"""

import functools
import sys

import attrs
import numpy as np
import pytest
from simulated_experiments import may_win, trained

from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.verdict import comparison as comparing
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.alpha_spending import level_of_look
from evsys_stats.binary_pairs import mcnemar
from evsys_stats.corrections import bonferroni
from evsys_stats.student import two_sided_p

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    baseline="old",
)
LOOKS, TASKS = 10, 100
MOST_SIGMA = 3.0


def rewards_of(rng, chances, shift, *, partial):
    """Rewards of a run whose chance on each task is shifted: 0 or 1, or a part of ten."""
    shifted = np.clip(chances + shift, 0.0, 1.0)
    return rng.binomial(10, shifted) / 10 if partial else (rng.random(len(chances)) < shifted).astype(float)


def look(rng, chances, level, *, deviation, partial, runs=1):
    """Whether a look is SUPPORTED, and how much better the arm's models truly are than the baseline's."""
    shifts = rng.normal(0.0, deviation, (2, runs)) if deviation else np.zeros((2, runs))
    rewards = [
        np.array([rewards_of(rng, chances, shift, partial=partial) for shift in own]) for own in shifts
    ]
    verdict = "INCONCLUSIVE"
    if may_win(rewards[1].mean(axis=0) - rewards[0].mean(axis=0)):
        results = [
            trained(name, None, row, repeat)
            for name, rows in zip(("old", "new"), rewards, strict=True)
            for repeat, row in enumerate(rows)
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
    sys.stdout.write(f"a false claim after {LOOKS} looks: {100 * wrong / sessions:.2f} %\n")
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
    more, draws, p_value = round(1.1 * tasks), 4000, functools.cache(mcnemar)
    power = {}
    for level, count in ((ALPHA, tasks), (level_of_look(1, ALPHA), more)):
        better = rng.binomial(count, 0.25 + effect / 2, draws)
        worse = rng.binomial(count - better, (0.25 - effect / 2) / (0.75 - effect / 2))
        seen = zip(*map(np.ndarray.tolist, (better, worse)), strict=True)
        power[level] = np.mean([b > w and p_value(b, w) <= level for b, w in seen])
    before, now = power[ALPHA], power[level_of_look(1, ALPHA)]
    assert 0.6 < before < 0.95
    assert now >= before - MOST_SIGMA * (2 * before * (1 - before) / draws) ** 0.5


@pytest.mark.parametrize(
    "draws",
    [
        pytest.param(30, id="few"),
        pytest.param(3000, id="many", marks=(pytest.mark.slow, pytest.mark.timeout(1800))),
    ],
)
@pytest.mark.parametrize("arms", [1, 5])
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial credit"])
@pytest.mark.parametrize("tasks", [100, 500])
def test_a_first_look_with_a_tenth_more_tasks_finds_as_much_as_a_plain_test(
    tasks, partial, arms, draws, monkeypatch
):
    """A plain test asks at the whole level, and by Bonferroni's correction; the first arm is better, nothing is wrong with the data."""
    monkeypatch.setattr(comparing, "DRAWS", 2000)
    rng = np.random.default_rng(tasks + arms)
    more = round(1.1 * tasks)
    effect = (0.6 if partial else 2.0) * (1.25 if arms > 1 else 1.0) / tasks**0.5
    plain, now = np.zeros(draws), np.zeros(draws)
    for draw in range(draws):
        chances = rng.uniform(0.2, 0.7, more)
        shifts = [0.0, effect, *[0.0] * (arms - 1)]
        rows = np.array([rewards_of(rng, chances, shift, partial=partial) for shift in shifts])
        plain[draw] = plain_test_finds(rows[:, :tasks], binary=not partial)
        results = [trained("old", None, rows[0])] + [
            trained(f"a{i}", None, r) for i, r in enumerate(rows[1:])
        ]
        found = conclude(attrs.evolve(QUESTION, level=level_of_look(1, ALPHA)), results)
        now[draw] = found.comparisons[0].outcome == "win"
    room = MOST_SIGMA * float((now - plain).std()) / draws**0.5
    sys.stdout.write(f"power {plain.mean():.3f} by a plain test, {now.mean():.3f} with a tenth more tasks\n")
    assert now.mean() >= plain.mean() - room
    if draws >= 1000:
        assert 0.6 < plain.mean() < 0.95


def plain_test_finds(rows, *, binary):
    """Whether McNemar's test or Student's t at the whole level, by Bonferroni's correction, finds the first arm better than row 0."""
    differences = rows[1:] - rows[0]
    if binary:
        p_values = [mcnemar(int((d > 0).sum()), int((d < 0).sum())) for d in differences]
    else:
        errors = differences.std(axis=1, ddof=1) / differences.shape[1] ** 0.5
        p_values = [two_sided_p(t, differences.shape[1] - 1) for t in differences.mean(axis=1) / errors]
    return bonferroni(p_values)[0] <= ALPHA and differences[0].mean() > 0
