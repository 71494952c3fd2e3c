"""Which arms `asha` stops."""

from __future__ import annotations

import math

import pytest

from evsys_std.search import Asha


def entries(*scores, stopped_at=()):
    """A history with the scores of each arm, pairs of step and score, and the step at which it was stopped by number."""
    at = dict(stopped_at)
    return [
        {"n": n, "values": {"x": n}, "scores": list(pairs), "stopped_at": at.get(n)}
        for n, pairs in enumerate(scores)
    ]


def judged(asha, *scores):
    """Whether the last arm goes on after its last score."""
    step, score = scores[-1][-1]
    return asha.keep(entries(*scores), len(scores) - 1, step, score)


def test_the_first_arm_on_a_rung_and_the_best_so_far_go_on():
    asha = Asha(min_steps=2)
    assert judged(asha, [(2, 0.1)])
    assert judged(asha, [(2, 0.1)], [(2, 0.2)])
    assert not judged(asha, [(2, 0.2)], [(2, 0.1)])


def test_one_in_the_reduction_factor_goes_on():
    asha = Asha(min_steps=1, reduction_factor=3)
    there = [[(1, score)] for score in (0.9, 0.8, 0.7, 0.6, 0.5)]
    assert judged(asha, *there, [(1, 0.85)])  # second of six
    assert not judged(asha, *there, [(1, 0.75)])  # third of six


def test_equal_scores_share_the_places_first_come_first_served():
    asha = Asha(min_steps=1)
    stopped, went_on = {}, []
    for n in range(12):
        history = entries(*([[(1, 0.0)]] * (n + 1)), stopped_at=stopped)
        if asha.keep(history, n, 1, 0.0):
            went_on.append(n)
        else:
            stopped[n] = 1
    assert went_on == [0, 5, 8, 11]


def test_what_is_better_takes_the_places_of_what_is_equal():
    asha = Asha(min_steps=1)
    there = [[(1, score)] for score in (0.0, 0.0, 0.9, 0.8, 0.0)]
    assert not asha.keep(entries(*there, [(1, 0.0)], stopped_at={1: 1, 4: 1}), 5, 1, 0.0)
    assert asha.keep(entries(*there, [(1, 0.85)], stopped_at={1: 1, 4: 1}), 5, 1, 0.85)


def test_an_arm_that_was_stopped_later_has_had_its_place_on_the_rungs_before():
    asha = Asha(min_steps=1)
    there = [[(1, 0.5), (3, 0.1)], [(1, 0.1)]]
    assert not asha.keep(entries(*there, [(1, 0.5)], stopped_at={0: 3, 1: 1}), 2, 1, 0.5)


def test_with_a_noise_floor_equal_arms_all_go_on():
    asha = Asha(min_steps=1, noise_floor=0.01)
    assert judged(asha, *([[(1, 0.0)]] * 9))


def test_nobody_is_judged_before_the_first_rung_or_twice_on_one():
    asha = Asha(min_steps=4, reduction_factor=2)
    better = [(2, 0.9), (4, 0.9), (8, 0.9)]
    assert judged(asha, better, [(2, 0.1)])
    assert not judged(asha, better, [(2, 0.1), (4, 0.1)])
    assert judged(asha, better, [(2, 0.1), (4, 0.95), (6, 0.1)])
    assert not judged(asha, better, [(2, 0.1), (4, 0.95), (6, 0.1), (8, 0.1)])


def test_a_rung_is_judged_by_the_first_score_at_or_after_it():
    asha = Asha(min_steps=4)
    assert not judged(asha, [(4, 0.5)], [(3, 0.9), (6, 0.4)])


def test_after_the_last_rung_nobody_is_stopped():
    asha = Asha(min_steps=1, rungs=1, reduction_factor=2)
    assert not judged(asha, [(1, 0.5), (2, 0.5)], [(1, 0.4)])
    assert judged(asha, [(1, 0.5), (2, 0.5)], [(1, 0.6), (2, 0.4)])


def test_less_than_the_noise_floor_behind_is_not_behind():
    asha = Asha(min_steps=1, noise_floor=0.05)
    assert judged(asha, [(1, 0.50)], [(1, 0.46)])
    assert not judged(asha, [(1, 0.50)], [(1, 0.44)])


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_the_worst(odd):
    asha = Asha(min_steps=1)
    assert not judged(asha, [(1, odd)])
    assert judged(asha, [(1, odd)], [(1, -5.0)])


def test_arms_without_a_score_on_a_rung_dont_count_there():
    asha = Asha(min_steps=1, reduction_factor=2)
    assert not judged(asha, [(1, 0.5)], [], [(1, 0.4)])
