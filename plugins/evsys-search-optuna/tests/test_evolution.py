"""What the sampler `cmaes` makes of a history."""

from __future__ import annotations

import math
import random
from importlib.util import find_spec

import pytest

from evsys.types import SearchAxis
from evsys_search_optuna import Optuna, evolution

X = SearchAxis(path="x", low=-2.0, high=3.0)
RATE = SearchAxis(path="rate", low=1e-5, high=1e-1, log=True)
RANK = SearchAxis(path="rank", low=2, high=40, type="int")
SPACE = (X, RATE, RANK)

needs_cmaes = pytest.mark.skipif(
    find_spec("cmaes") is None, reason="the extra evsys-search-optuna[cmaes] is not installed"
)


def made(**params):
    return Optuna(sampler="cmaes", **params)


def searched(search, score, space=SPACE, most=200):
    """The history of a whole search, each arm scored by `score`."""
    history = []
    while len(history) < most and (arms := search.ask(history, space)):
        history += [ended(arm, score(arm), len(history)) for arm in arms]
    return history


def ended(arm, score, n):
    return {
        "n": n,
        "values": arm,
        "by": "optuna",
        "status": "completed" if score is not None else "failed",
        "score": score,
        "scores": [],
    }


def valley(arm):
    """Best at x 1, a rate of 1e-3 and a rank of 20; what is best on one axis depends on the others."""
    x, rate, rank = arm["x"] - 1, math.log10(arm["rate"]) + 3, (arm["rank"] - 20) / 10
    return -((x + rate) ** 2) - 4 * (x - rate) ** 2 - rank**2


@needs_cmaes
def test_it_comes_close_to_the_best_arm():
    history = searched(made(arms=120), valley)
    assert len(history) == 120
    assert max(entry["score"] for entry in history) > -0.02
    first, last = ([entry["score"] for entry in part] for part in (history[:14], history[-14:]))
    assert sum(last) / 14 > sum(first) / 14 / 20


@needs_cmaes
def test_arms_lie_in_the_space_and_none_comes_twice():
    history = searched(made(arms=90), valley)
    assert len({tuple(entry["values"].values()) for entry in history}) == 90
    for entry in history:
        assert -2 <= entry["values"]["x"] <= 3
        assert 1e-5 <= entry["values"]["rate"] <= 1e-1
        assert isinstance(entry["values"]["rank"], int)
        assert 2 <= entry["values"]["rank"] <= 40


@needs_cmaes
def test_it_proposes_what_the_package_does_when_it_is_asked_and_told_without_a_break():
    import cmaes
    import numpy as np

    strategy = cmaes.CMA(
        mean=np.array([0.5, 0.5]),
        sigma=1 / 6,
        bounds=np.array([[0.0, 1.0], [0.0, 1.0]]),
        seed=random.Random("cmaes/0").getrandbits(32),
        population_size=5,
    )
    expected = []
    for _ in range(6):
        points = [strategy.ask() for _ in range(5)]
        arms = [
            {"x": float(f"{-2 + 5 * a:.4g}"), "rate": float(f"{10 ** (4 * b - 5):.4g}")} for a, b in points
        ]
        expected += arms
        strategy.tell(
            [(point, -valley({**arm, "rank": 20})) for point, arm in zip(points, arms, strict=True)]
        )
    search = made(arms=30, population=5)
    history = searched(search, lambda arm: valley({**arm, "rank": 20}), (X, RATE))
    assert [entry["values"] for entry in history] == expected


@needs_cmaes
def test_a_search_that_is_taken_up_again_proposes_the_same():
    whole = searched(made(arms=40), valley)
    for cut in (0, 3, 7, 20, 39):
        assert made(arms=40).ask(whole[:cut], SPACE) == [whole[cut]["values"]]
    assert searched(made(arms=40, seed=1), valley) != whole


@needs_cmaes
@pytest.mark.parametrize("odd", [None, math.nan, math.inf])
def test_arms_without_a_score_are_the_worst_ones(odd):
    """Nothing below x 1 has a score, and the best ones lie right above it."""
    history = searched(made(arms=100), lambda arm: odd if arm["x"] < 1 else -arm["x"])
    late = sorted(entry["values"]["x"] for entry in history[-20:])
    assert sum(x >= 1 for x in late) >= 10
    assert 0.9 < late[10] < 1.3
    assert len(searched(made(arms=30), lambda _arm: odd)) == 30


@needs_cmaes
def test_a_generation_that_still_runs_is_waited_for():
    history = searched(made(arms=60, population=6), valley, most=6)
    running = [*history[:5], {**history[5], "status": "running", "score": None}]
    assert made(arms=60, population=6).ask(history, SPACE)
    assert made(arms=60, population=6).ask(running, SPACE) == []
    assert made(arms=60, population=6).ask(running[:2] + running[5:], SPACE)  # the generation isn't full


@needs_cmaes
def test_an_arm_that_runs_again_after_a_resume_keeps_nobody_waiting():
    history = searched(made(arms=60, population=6), valley, most=9)
    again = [{**history[0], "status": "running", "score": None}, *history[1:]]
    assert made(arms=60, population=6).ask(again, SPACE)


@needs_cmaes
def test_arms_of_a_referee_have_no_part_in_it_and_arent_proposed_again():
    plain = searched(made(arms=30), valley, most=10)
    drawn = {"x": 0.5, "rate": 0.01, "rank": 7}
    beside = [*plain[:5], {**ended(drawn, 100.0, 5), "by": "referee"}, *plain[5:]]
    assert made(arms=30).ask(beside, SPACE) == made(arms=30).ask(plain, SPACE)


@needs_cmaes
def test_an_arm_that_was_tried_counts_instead_of_being_tried_again():
    """A referee happens to have had the very arm that comes next."""
    plain = searched(made(arms=30), valley, most=11)
    early = [*plain[:10], {**plain[10], "by": "referee"}]
    (after,) = made(arms=30).ask(early, SPACE)
    assert after not in [entry["values"] for entry in early]


@needs_cmaes
def test_a_space_that_is_used_up_ends_it():
    space = (SearchAxis(path="a", low=1, high=3, type="int"), SearchAxis(path="b", low=1, high=2, type="int"))
    history = searched(made(arms=50), lambda arm: float(arm["a"]), space)
    assert 4 <= len(history) <= 6


@needs_cmaes
def test_values_of_another_machine_count_as_they_are():
    history = searched(made(arms=60), valley, most=20)
    near = [{**entry, "values": {**entry["values"], "x": entry["values"]["x"] + 1e-3}} for entry in history]
    assert made(arms=60).ask(near, SPACE)
    for axis, value in ((X, 0.5), (RATE, 1e-3), (RANK, 17)):
        assert evolution._value(axis, evolution._place(axis, value)) == value


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ((X, SearchAxis(path="kind", choices=("a", "b"))), "takes ranges, and 'kind' is a list; use 'tpe'"),
        (
            (X, RATE, SearchAxis(path="y", low=0, high=1, when={"x": (1.0,)})),
            "no axis with a condition, as 'y'",
        ),
        ((X,), "takes two axes or more, and there is one"),
    ],
)
def test_spaces_that_it_cant_choose_from_are_refused(space, message):
    assert any(message in said for said in made().validate_space(space))
    assert list(Optuna().validate_space(space)) == []


def test_where_the_package_is_missing_that_is_told(monkeypatch):
    monkeypatch.setattr(evolution, "find_spec", lambda _name: None)
    (said,) = made().validate_space(SPACE)
    assert "needs the package `cmaes`: pip install 'evsys-search-optuna[cmaes]'" in said


@needs_cmaes
def test_a_space_of_ranges_is_accepted():
    assert list(made().validate_space(SPACE)) == []
