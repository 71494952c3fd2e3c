"""What Optuna's samplers make of a history."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evsys.types import SearchAxis
from evsys_search_optuna import Optuna

RATE = SearchAxis(path="rate", low=1e-5, high=1e-1, log=True)
KIND = SearchAxis(path="kind", choices=({"name": "a"}, {"name": "b"}))
RANK = SearchAxis(path="rank", low=2, high=16, type="int", when={"kind": ({"name": "b"},)})
SPACE = (RATE, KIND, RANK)


def searched(search, score, space=SPACE):
    """The history of a whole search, each arm scored by `score`."""
    history = []
    while arms := search.ask(history, space):
        for arm in arms:
            value = score(arm)
            status = "completed" if value is not None else "failed"
            history.append({"n": len(history), "values": arm, "status": status, "score": value, "scores": []})
    return history


def peak(arm):
    """Best near a rate of 1e-3 with kind b."""
    import math

    return (arm["kind"]["name"] == "b") - abs(math.log10(arm["rate"]) + 3)


def test_tpe_comes_closer_to_the_best_than_its_random_start():
    history = searched(Optuna(arms=40, seed=1), peak)
    first, last = ([entry["score"] for entry in part] for part in (history[:8], history[-8:]))
    assert len(history) == 40
    assert sum(last) / 8 > sum(first) / 8 + 0.5
    assert max(entry["score"] for entry in history) > 0.8


def test_arms_that_fail_are_avoided():
    """All of kind a fail: without scores they are the worst ones."""
    history = searched(Optuna(arms=30), lambda arm: 0.5 if arm["kind"]["name"] == "b" else None)
    late = [entry["values"]["kind"]["name"] for entry in history[-10:]]
    assert late.count("b") >= 7


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_is_taken_up_again_proposes_the_same(sampler):
    whole = searched(Optuna(arms=14, sampler=sampler), peak)
    for cut in (0, 3, 9, 13):
        assert Optuna(arms=14, sampler=sampler).ask(whole[:cut], SPACE) == [whole[cut]["values"]]


def test_running_arms_are_known():
    search = Optuna(arms=12)
    history = searched(Optuna(arms=10), peak)
    running = [{**entry, "status": "running", "score": None} for entry in history[-3:]]
    (arm,) = search.ask([*history[:-3], *running], SPACE)
    assert arm not in [entry["values"] for entry in history]


def test_true_is_another_choice_than_1():
    space = (SearchAxis(path="x", choices=(1, True)),)
    history = searched(Optuna(arms=9), lambda arm: 0.0, space)
    assert sorted(repr(entry["values"]["x"]) for entry in history) == ["1", "True"]


def test_nothing_is_imported_before_it_is_asked():
    code = "import sys, evsys_search_optuna; evsys_search_optuna.Optuna(); print('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
