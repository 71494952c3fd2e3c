"""What the searches propose."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import SearchAxis
from evsys_std.search import Asha, Grid, Random, Sobol
from evsys_std.search.sobol import MOST_AXES, sequence
from evsys_std.search.space import spread, value_at

RATE = SearchAxis(path="algorithm.params.learning_rate", low=1e-5, high=1e-2, log=True)
RANK = SearchAxis(path="algorithm.params.lora_rank", low=4, high=32, type="int")
KIND = SearchAxis(path="algorithm.kind", choices=("sft", "rl"))
KL = SearchAxis(path="algorithm.params.kl_coef", low=0.0, high=0.1, when={"algorithm.kind": ("rl",)})
SPACE = (RATE, RANK, KIND, KL)


def all_arms(search, space, most=200):
    """Every arm that a search proposes where nothing is learned of any."""
    history = []
    while len(history) < most and (arms := search.ask(history, space)):
        history += [{"n": len(history) + i, "values": arm, "scores": []} for i, arm in enumerate(arms)]
    return [entry["values"] for entry in history]


@pytest.mark.parametrize(
    "search",
    [
        Random(arms=40),
        Sobol(arms=40),
        Grid(points=3),
        Asha(min_steps=2, arms=40),
        Asha(min_steps=2, sampler="grid", points=3),
    ],
    ids=["random", "sobol", "grid", "asha", "asha_grid"],
)
def test_arms_lie_in_the_space_and_none_comes_twice(search):
    arms = all_arms(search, SPACE)

    assert len(arms) == search.size(SPACE)
    assert len({tuple(sorted(arm.items())) for arm in arms}) == len(arms)
    for arm in arms:
        assert 1e-5 <= arm[RATE.path] <= 1e-2
        assert isinstance(arm[RANK.path], int)
        assert 4 <= arm[RANK.path] <= 32
        assert (KL.path in arm) == (arm[KIND.path] == "rl")


def test_a_grid_varies_the_first_axis_slowest_and_spreads_ranges_from_end_to_end():
    rate = SearchAxis(path="a", low=1e-4, high=1e-2, log=True)
    arms = all_arms(Grid(points=3), (rate, KIND))
    assert [tuple(arm.values()) for arm in arms] == list(itertools.product((1e-4, 1e-3, 1e-2), ("sft", "rl")))


def test_a_grid_in_drawn_order_has_the_same_arms():
    plain, drawn = (
        [tuple(arm.items()) for arm in all_arms(Grid(points=3, **more), SPACE)]
        for more in ({}, {"shuffle": 1})
    )
    assert plain != drawn
    assert set(plain) == set(drawn)


def test_a_grid_of_too_many_arms_is_refused_without_counting_them_out():
    axes = tuple(SearchAxis(path=f"x{i}", choices=tuple(range(100))) for i in range(20))
    assert list(Grid().validate_space(axes)) == [
        f"a grid over these axes has {100**20:,} arms; at most 100,000 are accepted"
    ]


def test_a_space_that_is_used_up_ends_a_search():
    space = (KIND,)
    assert len(all_arms(Random(arms=50), space)) == 2
    assert len(all_arms(Sobol(arms=50), space)) == 2


def test_a_search_says_that_it_is_going_to_propose_no_more_than_a_space_has():
    space = (KIND, SearchAxis(path="rank", low=4, high=6, type="int"))
    for search in (Random(arms=50), Sobol(arms=50), Asha(min_steps=1, arms=50)):
        assert search.size(space) == len(all_arms(search, space)) == 6
        assert search.size((*space, KL)) == 50
        assert search.size((*space, attrs.evolve(space[1], path="x", when={KIND.path: ("rl",)}))) == 24


def test_random_draws_evenly_on_the_scale_of_the_axis():
    arms = all_arms(Random(arms=400), (RATE, RANK, KIND), most=400)
    below = sum(arm[RATE.path] < math.sqrt(1e-5 * 1e-2) for arm in arms)
    assert 150 < below < 250
    assert 150 < sum(arm[KIND.path] == "rl" for arm in arms) < 250
    assert {arm[RANK.path] for arm in arms} == set(range(4, 33))


def test_another_axis_doesnt_change_what_random_draws_on_the_others():
    with_it, without = all_arms(Random(arms=9), (RATE, KIND)), all_arms(Random(arms=9), (RATE,))
    assert [arm[RATE.path] for arm in with_it] == [arm[RATE.path] for arm in without]


def test_another_seed_draws_other_arms():
    for search in (Random, Sobol):
        assert all_arms(search(arms=8, seed=1), SPACE) != all_arms(search(arms=8), SPACE)


@pytest.mark.parametrize("seed", [0, 7])
def test_sobol_has_one_point_in_each_elementary_interval(seed):
    points = list(itertools.islice(sequence(MOST_AXES, seed), 64))
    for dimension in range(MOST_AXES):
        assert sorted(int(point[dimension] * 64) for point in points) == list(range(64))
    for a, b in itertools.pairwise(range(4)):  # the first dimensions in pairs, in boxes of 8 by 8
        boxes = Counter((int(point[a] * 8), int(point[b] * 8)) for point in points)
        if (a, b) == (0, 1):
            assert set(boxes.values()) == {1}
        else:
            assert max(boxes.values()) <= 4


def test_sobol_gives_the_points_that_scipy_gives():
    """Apart from the shift, which is the first point: Joe and Kuo's numbers in all dimensions; see make_sobol_values.py."""
    known = json.loads(Path(__file__).with_name("sobol_values.json").read_text(encoding="utf-8"))
    expected, scale = known["points"], 1 << known["bits"]
    shifted = list(itertools.islice(sequence(MOST_AXES, 3), len(expected)))
    first = shifted[0]
    assert [
        [int(one * scale) ^ int(zero * scale) for one, zero in zip(point, first, strict=True)]
        for point in shifted
    ] == expected


def test_sobol_refuses_more_axes_than_it_has_numbers_for():
    axes = tuple(SearchAxis(path=f"x{i}", low=0, high=1) for i in range(MOST_AXES + 1))
    assert list(Sobol().validate_space(axes)) == ["sobol takes at most 21 axes, and there are 22"]
    assert list(Sobol().validate_space(axes[1:])) == []


@given(
    st.floats(0, 1, exclude_max=True),
    st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)).map(sorted),
    st.booleans(),
)
def test_floats_stay_in_their_range_and_have_four_digits_between_its_ends(place, ends, log):
    low, high = ends
    value = value_at(SearchAxis(path="x", low=low, high=high, log=log), place)
    assert low <= value <= high
    assert value in (low, high) or value == float(f"{value:.4g}")


@given(st.integers(1, 50), st.integers(0, 50), st.booleans())
def test_every_integer_of_a_range_is_drawn(low, more, log):
    axis = SearchAxis(path="x", low=low, high=low + more, log=log, type="int")
    assert {value_at(axis, place / 20_000) for place in range(20_000)} == set(range(low, low + more + 1))


def test_points_of_a_range_are_distinct():
    assert spread(SearchAxis(path="x", low=1, high=3, type="int"), 10) == (1, 2, 3)
    assert spread(SearchAxis(path="x", low=1, high=3, type="int"), 1) == (2,)
    assert spread(SearchAxis(path="x", low=0.5, high=0.5), 4) == (0.5,)
