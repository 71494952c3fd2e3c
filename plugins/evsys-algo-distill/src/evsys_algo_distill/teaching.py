"""The teacher's judgement of the student's answers: how likely their tokens are, and which ones it prefers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys.types import SamplingParams
from evsys_runtime.training.comparable import Comparable, comparable, logprobs_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient
    from evsys_algo_distill.answers import Answer

__all__ = ["Opinion", "logprobs_of", "opinions_of"]


@attrs.frozen(kw_only=True, eq=False)
class Opinion:
    """Of one answer of n tokens.

    Attributes:
        logprobs: [n], of the tokens said.
        tokens: [n, K], the likeliest at each place.
        probabilities: [n, K], of those, as if there were no others: each row adds up to 1. A place with fewer than K
            candidates has zeros at its end, one with none at all nothing else.
        missed: at how many places the sampled token isn't among the likeliest.
    """

    logprobs: NDArray[np.float64]
    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    missed: int


async def logprobs_of(teacher: SamplingClient, answers: Sequence[Answer]) -> Comparable:
    """The teacher's logprobs of what was said, [n] each.

    Raises:
        AlgorithmError: it gave too few, or none that is a number.
    """
    theirs = await logprobs_by(teacher, [answer.judged for answer in answers], who="teacher")
    return comparable(theirs, [answer.logprobs for answer in answers], who="teacher")


async def opinions_of(
    teacher: SamplingClient, answers: Sequence[Answer], k: int
) -> tuple[list[Opinion], Comparable]:
    """The same with the `k` likeliest tokens of each place.

    Returns:
        An opinion of each answer, and their logprobs as `logprobs_of` gives them; a place without a candidate counts as unknown.

    Raises:
        AlgorithmError: it gave none, or too few.
    """
    # A sample is the one call that gives them; the token that it draws is of no use.
    wanted = SamplingParams(max_tokens=1, seed=0, prompt_logprobs=True, top_prompt_logprobs=k)
    read = [answer.judged for answer in answers]
    results = await asyncio.gather(*(teacher.sample(tokens, wanted) for tokens, _ in read))
    theirs, likeliest = [], []
    for (whole, said), result in zip(read, results, strict=True):
        own, top = result.prompt_logprobs or (), result.top_prompt_logprobs or ()
        places = np.flatnonzero(said).tolist()
        rows = [row for place in places if place < len(top) and (row := top[place])]
        if len(own) != len(whole) or len(rows) != len(places):
            raise AlgorithmError(
                f"the teacher gave the likeliest tokens of {len(rows)} places for {len(places)} tokens"
            )
        chosen = _likeliest(rows, k)
        likeliest.append(chosen)
        own_logprobs = np.asarray(own, np.float64)[said]
        theirs.append(np.where(chosen[1].any(axis=1), own_logprobs, np.nan))
    told = comparable(theirs, [answer.logprobs for answer in answers], who="teacher")
    opinions = []
    for answer, logprobs, (tokens, probabilities) in zip(answers, told.logprobs, likeliest, strict=True):
        hit = ((tokens == answer.tokens[:, None]) & (probabilities > 0)).any(axis=1)
        missed = int(np.count_nonzero(~hit))
        opinions.append(Opinion(logprobs=logprobs, tokens=tokens, probabilities=probabilities, missed=missed))
    return opinions, told


def _likeliest(top: Sequence[Mapping[int, float]], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Tokens and probabilities, [n, K]; what is impossible or no number is not a candidate."""
    tokens = np.zeros((len(top), k), np.int64)
    logprobs = np.full((len(top), k), -np.inf)
    for place, row in enumerate(top):
        known = [(token, value) for token, value in row.items() if np.isfinite(value)]
        best = sorted(known, key=lambda pair: (-pair[1], pair[0]))[:k]
        tokens[place, : len(best)] = [token for token, _ in best]
        logprobs[place, : len(best)] = [value for _, value in best]
    highest = logprobs.max(axis=1, keepdims=True)
    weights = np.exp(logprobs - np.where(np.isfinite(highest), highest, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    return tokens, weights / np.where(total > 0, total, 1.0)
