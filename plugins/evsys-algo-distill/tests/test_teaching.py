"""What a teacher says, and what is made of it."""

import numpy as np
import pytest

from evsys.errors import AlgorithmError
from evsys.types import SampledSequence, SampleResult
from evsys_algo_distill.answers import Answer
from evsys_algo_distill.teaching import logprobs_of, opinions_of
from evsys_runtime.training.trajectories import Span, Trajectory


class Teacher:
    """Says what it is told to, of three positions: a context of one token, an answer of two."""

    def __init__(self, top, own=(None, -1.0, -2.0)):
        self.top, self.own = top, own

    async def sample(self, prompt, params, n=1):
        assert (params.max_tokens, params.prompt_logprobs) == (1, True)
        said = SampledSequence(tokens=[0], logprobs=[0.0], finish_reason="length")
        return SampleResult(sequences=[said], prompt_logprobs=self.own, top_prompt_logprobs=self.top)

    async def compute_logprobs(self, tokens):
        return np.array([np.nan, *self.own[1:]])


def answer(shown=(5,)):
    """Of two tokens, 6 and 7, after a prompt of three in whose place the teacher reads another."""
    said = Trajectory(
        tokens=np.array([1, 2, 3, 6, 7]), logprobs=np.array([0, 0, 0, -0.5, -0.7]), spans=(Span(3, 5, 0, 0),)
    )
    return Answer(trajectory=said, shown=shown)


async def opinion(top, k=2, **told):
    ((found,), _) = await opinions_of(Teacher(top, **told), [answer()], k)
    return found


async def test_the_likeliest_are_renormalised():
    found = await opinion([None, {6: np.log(0.6), 8: np.log(0.2)}, {7: np.log(0.1), 3: np.log(0.3)}])
    np.testing.assert_array_equal(found.tokens, [[6, 8], [3, 7]])
    np.testing.assert_allclose(found.probabilities, [[0.75, 0.25], [0.75, 0.25]])
    np.testing.assert_allclose(found.logprobs, [-1.0, -2.0])
    assert found.missed == 0


async def test_a_token_that_isnt_among_the_likeliest_is_counted():
    assert (await opinion([None, {1: -0.1, 2: -3.0}, {7: -0.1, 3: -3.0}])).missed == 1
    assert (await opinion([None, {1: -0.1, 2: -3.0}, {3: -0.1, 4: -3.0}])).missed == 2


async def test_more_than_were_asked_for_are_cut_and_fewer_filled_up_with_nothing():
    found = await opinion([None, {6: -3.0, 1: -1.0, 2: -2.0}, {7: -0.5}])
    np.testing.assert_array_equal(found.tokens[0], [1, 2])
    np.testing.assert_allclose(found.probabilities[1], [1.0, 0.0])
    assert found.missed == 1  # token 6 was cut; and token 0, which fills up, stands for nothing


@pytest.mark.parametrize("top", [None, [None, {6: -0.1}], [None, {6: -0.1}, None]])
async def test_a_teacher_that_says_too_little_is_an_error(top):
    with pytest.raises(AlgorithmError, match="the likeliest tokens"):
        await opinion(top)


async def test_logprobs_are_those_of_what_was_said():
    (found,) = (await logprobs_of(Teacher(None), [answer()])).logprobs
    np.testing.assert_allclose(found, [-1.0, -2.0])
    with pytest.raises(AlgorithmError, match="3 logprobs for 4 tokens"):
        await logprobs_of(Teacher(None), [answer(shown=(5, 5))])


async def test_a_teacher_that_reads_what_the_student_read_is_asked_about_all_of_its_turns():
    turns = Trajectory(
        tokens=np.array([1, 2, 3, 4, 5]),
        logprobs=np.array([0, -0.5, 0, -0.7, -0.1]),
        spans=(Span(1, 2, 0, 0), Span(3, 5, 1, 0)),
    )
    teacher = Teacher(None, own=(None, -1.0, -2.0, -3.0, -4.0))
    (found,) = (await logprobs_of(teacher, [Answer(trajectory=turns)])).logprobs
    np.testing.assert_allclose(found, [-1.0, -3.0, -4.0])


async def test_what_the_teacher_finds_impossible_is_bounded_and_what_it_does_not_tell_agrees():
    top = [None, {6: -np.inf, 8: np.log(0.2)}, {7: np.nan, 3: np.log(0.3)}]
    (found,), told = await opinions_of(Teacher(top, own=(None, -np.inf, None)), [answer()], 2)
    np.testing.assert_array_equal(found.logprobs, [-50.0, -0.7])
    np.testing.assert_array_equal(found.probabilities, [[1.0, 0.0], [1.0, 0.0]])
    assert found.missed == 2
    assert told.metrics("teacher") == {"teacher_bounded_share": 0.5, "teacher_unknown_share": 0.5}


async def test_a_place_without_a_candidate_teaches_nothing_and_is_counted():
    top = [None, {6: -np.inf, 8: np.nan}, {7: -0.5}]
    (found,), told = await opinions_of(Teacher(top), [answer()], 2)
    np.testing.assert_array_equal(found.probabilities, [[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(found.logprobs, [-0.5, -2.0])
    assert told.unknown == 1
    with pytest.raises(AlgorithmError, match="for any of 2 tokens"):
        await opinion([None, {6: np.nan}, {7: -np.inf}])
