"""What the teacher thinks of the student's answers: how likely their tokens are, and which ones it would rather have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys.types import SamplingParams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient

__all__ = ["Opinion", "logprobs_of", "opinions_of"]


@attrs.frozen(kw_only=True, eq=False)
class Opinion:
    """Of one answer of n tokens.

    Attributes:
        logprobs: [n], of the tokens that were said.
        tokens: [n, K], the likeliest at each place.
        probabilities: [n, K], of those, as if there were no others: each row adds up to 1. A place with fewer than K
            candidates has zeros at its end.
        missed: at how many places the token that was said isn't among the likeliest.
    """

    logprobs: NDArray[np.float64]
    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    missed: int


async def logprobs_of(
    teacher: SamplingClient, contexts: Sequence[Sequence[int]], said: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.float64]]:
    """The teacher's logprobs of what was said after each context, [n] each.

    Raises:
        AlgorithmError: it gave too few.
    """
    whole = [[*context, *tokens.tolist()] for context, tokens in zip(contexts, said, strict=True)]
    found = await asyncio.gather(*(teacher.compute_logprobs(tokens) for tokens in whole))
    for tokens, values in zip(whole, found, strict=True):
        if len(values) != len(tokens):
            raise AlgorithmError(f"the teacher gave {len(values)} logprobs for {len(tokens)} tokens")
    return [
        np.asarray(values[len(context) :], np.float64)
        for values, context in zip(found, contexts, strict=True)
    ]


async def opinions_of(
    teacher: SamplingClient,
    contexts: Sequence[Sequence[int]],
    said: Sequence[NDArray[np.int64]],
    k: int,
) -> list[Opinion]:
    """The same with the `k` likeliest tokens of each place.

    Raises:
        AlgorithmError: it gave none, or too few.
    """
    # A sample is the one call that gives them; the token that it draws is of no use.
    wanted = SamplingParams(max_tokens=1, seed=0, prompt_logprobs=True, top_prompt_logprobs=k)
    whole = [[*context, *tokens.tolist()] for context, tokens in zip(contexts, said, strict=True)]
    results = await asyncio.gather(*(teacher.sample(tokens, wanted) for tokens in whole))
    found = []
    for context, tokens, result in zip(contexts, said, results, strict=True):
        own, top = result.prompt_logprobs or (), result.top_prompt_logprobs or ()
        own, top = own[len(context) :], top[len(context) :]
        if len(own) != len(tokens) or len(top) != len(tokens) or not all(top):
            raise AlgorithmError(
                f"the teacher gave the likeliest tokens of {len(top)} places for {len(tokens)} tokens"
            )
        found.append(_opinion(tokens, np.asarray(own, np.float64), [row for row in top if row], k))
    return found


def _opinion(
    said: NDArray[np.int64], own: NDArray[np.float64], top: Sequence[Mapping[int, float]], k: int
) -> Opinion:
    tokens = np.zeros((len(top), k), np.int64)
    logprobs = np.full((len(top), k), -np.inf)
    for place, row in enumerate(top):
        best = sorted(row.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
        tokens[place, : len(best)] = [token for token, _ in best]
        logprobs[place, : len(best)] = [value for _, value in best]
    weights = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    hit = ((tokens == said[:, None]) & (probabilities > 0)).any(axis=1)
    return Opinion(
        logprobs=own,
        tokens=tokens,
        probabilities=probabilities,
        missed=int(np.count_nonzero(~hit)),
    )
