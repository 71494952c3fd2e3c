import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_verifiers_std.metrics import BestOfK, MeanReward, PassAtK, PassHatK, PassRate


def label(metric):
    settings = "-".join(str(value) for value in vars(metric).values())
    return f"{metric.name}-{settings}" if settings else metric.name


REWARDS = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=3, max_size=6)
TASKS = st.lists(REWARDS, min_size=1, max_size=8)
ALL = [
    MeanReward(),
    PassRate(),
    PassRate(pass_threshold=0.5),
    PassAtK(k=1),
    PassAtK(k=3),
    PassHatK(k=1),
    PassHatK(k=3),
    BestOfK(k=1),
    BestOfK(k=3),
]


@pytest.mark.parametrize("metric", ALL, ids=label)
@settings(max_examples=30)
@given(tasks=TASKS, data=st.data())
def test_the_order_of_tasks_and_samples_changes_no_bit(metric, tasks, data):
    shuffled = [data.draw(st.permutations(rewards)) for rewards in data.draw(st.permutations(tasks))]
    assert metric.compute(shuffled) == metric.compute(tasks)


@pytest.mark.parametrize("metric", ALL, ids=label)
@settings(max_examples=30)
@given(tasks=TASKS)
def test_a_metric_stays_within_the_rewards_it_was_given(metric, tasks):
    assert 0.0 <= metric.compute(tasks) <= 1.0
    assert metric.compute([[1.0] * len(rewards) for rewards in tasks]) == 1.0
    assert metric.compute([[0.0] * len(rewards) for rewards in tasks]) == 0.0


@pytest.mark.parametrize("metric", ALL, ids=label)
def test_a_metric_of_nothing_is_no_number_and_more_is_better(metric):
    assert math.isnan(metric.compute([]))
    assert metric.direction == "max"


def test_every_task_weighs_the_same_however_often_it_was_sampled():
    tasks = [[1.0, 1.0, 1.0], [0.0]]
    assert MeanReward().compute(tasks) == 0.5
    assert PassRate().compute(tasks) == 0.5


def test_the_threshold_itself_passes():
    assert PassRate(pass_threshold=0.5).compute([[0.5, 0.49]]) == 0.5
    assert PassAtK(k=1, pass_threshold=0.5).compute([[0.5, 0.49]]) == 0.5


def test_a_reward_below_the_threshold_by_rounding_passes():
    rewards = [[0.7 + 0.2, 0.8999]]
    assert rewards[0][0] < 0.9
    assert PassRate(pass_threshold=0.9).compute(rewards) == 0.5
    assert PassAtK(k=1, pass_threshold=0.9).compute(rewards) == 0.5


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("n", [3, 5])
def test_the_estimators_are_unbiased_by_enumeration(k, p, n):
    """The expectation over all 2^n outcomes of n samples that pass with probability p is the truth for k fresh ones."""
    expected_at = expected_hat = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=n):
        passed = sum(outcome)
        probability = p**passed * (1 - p) ** (n - passed)
        expected_at += probability * PassAtK(k=k).compute([outcome])
        expected_hat += probability * PassHatK(k=k).compute([outcome])
    assert expected_at == pytest.approx(1 - (1 - p) ** k)
    assert expected_hat == pytest.approx(p**k)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7), k=st.integers(1, 7))
def test_the_estimators_equal_the_average_over_all_choices_of_k(rewards, k):
    if k > len(rewards):
        return
    choices = list(itertools.combinations(rewards, k))
    at = sum(max(choice) for choice in choices) / len(choices)
    hat = sum(min(choice) for choice in choices) / len(choices)
    assert PassAtK(k=k).compute([rewards]) == pytest.approx(at)
    assert PassHatK(k=k).compute([rewards]) == pytest.approx(hat)


@given(rewards=st.lists(st.floats(-5, 5), min_size=1, max_size=7), k=st.integers(1, 7))
def test_the_best_of_k_is_the_average_of_the_best_over_all_choices_of_k(rewards, k):
    if k > len(rewards):
        return
    best = [max(choice) for choice in itertools.combinations(rewards, k)]
    found = BestOfK(k=k).compute([rewards])
    assert found == pytest.approx(sum(best) / len(best))
    assert min(rewards) <= found <= max(rewards)


def test_the_best_of_k_is_pass_at_k_for_rewards_of_0_and_1_and_the_mean_for_one_sample():
    rewards = [1.0, 0.0, 0.0, 1.0, 0.0]
    for k in range(1, 6):
        assert BestOfK(k=k).compute([rewards]) == pytest.approx(PassAtK(k=k).compute([rewards]))
    assert BestOfK(k=1).compute([[0.25, 0.5, 0.9]]) == pytest.approx(MeanReward().compute([[0.25, 0.5, 0.9]]))


@pytest.mark.parametrize("metric", [PassAtK(k=5), PassHatK(k=5), BestOfK(k=5)], ids=label)
@pytest.mark.parametrize("rewards", [[0.0, 0.0], [1.0, 1.0], [1.0] * 4])
def test_more_than_the_samples_that_are_there_is_refused_and_never_one(metric, rewards):
    with pytest.raises(ValueError, match=r"(pass[@^]|best_of_)5 needs 5 scored samples of a task"):
        metric.compute([rewards])


def test_one_greedy_sample_of_each_task_gives_no_pass_at_ten():
    tasks = [[float(i < 50)] for i in range(164)]
    with pytest.raises(ValueError, match="needs 10"):
        PassAtK(k=10).compute(tasks)
    assert PassAtK(k=1).compute(tasks) == pytest.approx(50 / 164)


def test_a_metric_says_how_many_samples_it_needs():
    assert [metric.needs_samples for metric in (MeanReward(), PassRate(), PassAtK(k=3), PassHatK(k=4))] == [
        1,
        1,
        3,
        4,
    ]


@pytest.mark.parametrize("cls", [PassAtK, PassHatK, BestOfK])
def test_k_below_one_is_refused(cls):
    with pytest.raises(ValueError, match="at least 1"):
        cls(k=0)
    with pytest.raises(ValueError, match="k"):
        cls.Config(k=0)


def test_many_samples_are_exact():
    assert PassAtK(k=1000).compute([[1.0] + [0.0] * 9999]) == pytest.approx(0.1)
    assert BestOfK(k=1000).compute([[1.0] + [0.0] * 9999]) == pytest.approx(0.1)
