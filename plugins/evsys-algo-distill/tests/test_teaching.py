"""What a teacher says, and what is made of it."""

import numpy as np
import pytest

from evsys.errors import AlgorithmError
from evsys.types import SampledSequence, SampleResult
from evsys_algo_distill.teaching import logprobs_of, opinions_of


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


async def opinion(top, k=2):
    (found,) = await opinions_of(Teacher(top), [[5]], [np.array([6, 7])], k)
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
    (found,) = await logprobs_of(Teacher(None), [[5]], [np.array([6, 7])])
    np.testing.assert_allclose(found, [-1.0, -2.0])
    with pytest.raises(AlgorithmError, match="3 logprobs for 4 tokens"):
        await logprobs_of(Teacher(None), [[5, 5]], [np.array([6, 7])])
