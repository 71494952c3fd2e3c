import numpy as np
import pytest

from evsys.errors import AlgorithmError
from evsys_runtime.training.comparable import IMPOSSIBLE, comparable

OURS = [np.array([-1.0, -2.0, -3.0])]


def test_finite_logprobs_are_left_as_they_are():
    theirs = [np.array([-0.5, -600.0, 0.0])]
    found = comparable(theirs, OURS, who="teacher")
    np.testing.assert_array_equal(found.logprobs[0], theirs[0])
    assert found.metrics("teacher") == {"teacher_bounded_share": 0.0, "teacher_unknown_share": 0.0}


def test_what_is_impossible_is_bounded_and_what_is_unknown_agrees():
    found = comparable([np.array([-np.inf, np.nan, -9999.0])], OURS, who="teacher")
    np.testing.assert_array_equal(found.logprobs[0], [IMPOSSIBLE, -2.0, IMPOSSIBLE])
    assert found.metrics("teacher") == {"teacher_bounded_share": 2 / 3, "teacher_unknown_share": 1 / 3}


def test_less_likely_is_never_the_milder_verdict():
    found = comparable([np.array([-60.0, -np.inf, -50.0])], OURS, who="teacher").logprobs[0]
    assert found.tolist() == [-60.0, -60.0, -50.0]


def test_a_model_that_says_nothing_at_all_is_an_error():
    with pytest.raises(AlgorithmError, match="the teacher returns no logprob for any of 3 tokens"):
        comparable([np.full(3, np.nan)], OURS, who="teacher")


def test_nothing_to_compare_is_no_error():
    assert comparable([], [], who="teacher").tokens == 0
