"""What length does to a reward."""

import pytest

from evsys_algo_rl.params import RLParams
from evsys_algo_rl.shaping import length_penalty, overlong_penalty, shaped


@pytest.mark.parametrize(("length", "penalty"), [(0, 0.0), (60, 0.0), (80, -0.5), (100, -1.0), (120, -1.0)])
def test_the_overlong_penalty_falls_in_a_line_to_minus_one_at_the_limit(length, penalty):
    assert overlong_penalty(length, longest=100, buffer=40) == pytest.approx(penalty)


@pytest.mark.parametrize(("length", "penalty"), [(10, 0.0), (50, 0.0), (75, 0.5), (150, 2.0)])
def test_the_length_penalty_counts_targets(length, penalty):
    assert length_penalty(length, target=50) == pytest.approx(penalty)


def test_by_default_a_reward_stays_what_it_is():
    assert shaped(0.7, 256, 256, RLParams()) == 0.7


def test_only_right_answers_pay_for_their_length():
    params = RLParams(length_penalty=0.1, length_target=50)
    assert shaped(1.0, 100, 256, params) == pytest.approx(0.9)
    assert shaped(0.5, 100, 256, params) == 0.5


def test_penalised_overlong_answers_pay_before_the_limit():
    params = RLParams(overlong="penalise", max_tokens=100, overlong_buffer=40)
    assert shaped(1.0, 80, params.longest, params) == pytest.approx(0.5)
    assert shaped(1.0, 80, 100, RLParams(overlong="penalise", max_tokens=100)) == pytest.approx(0.8)
