"""A second model's logprobs of tokens sampled by the first, made comparable.

A teacher or a reference may find sampled tokens impossible: minus infinity, by which one token would outweigh all
others, or make all weights NaN. And a service may leave some out. Both are rare, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys_runtime.serving.messages import LEAST_LOGPROB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient

__all__ = ["IMPOSSIBLE", "Comparable", "comparable", "logprobs_by"]

IMPOSSIBLE = -50.0
"""Nats, 2e-22. An impossible token counts as this unlikely, or as unlikely as the least likely token with a number."""


@attrs.frozen(kw_only=True, eq=False)
class Comparable:
    """The logprobs of some sequences.

    Attributes:
        logprobs: [n] each, finite.
        tokens: how many in all.
        bounded: how many of them it finds impossible.
        unknown: how many of them are unknown; they count as if both models agreed.
    """

    logprobs: list[NDArray[np.float64]]
    tokens: int
    bounded: int
    unknown: int

    def metrics(self, who: str) -> dict[str, float]:
        """Both as shares, called after who said it."""
        return {
            f"{who}_bounded_share": self.bounded / max(self.tokens, 1),
            f"{who}_unknown_share": self.unknown / max(self.tokens, 1),
        }


async def logprobs_by(
    model: SamplingClient, read: Sequence[tuple[Sequence[int], NDArray[np.bool_]]], *, who: str
) -> list[NDArray[np.float64]]:
    """The logprobs that a second model gives some tokens of the sequences that it reads, [n] each.

    Args:
        model: a snapshot of it.
        read: sequences, each with its tokens, [N], and with True at the requested ones.
        who: its name, for messages.

    Raises:
        AlgorithmError: it gave too few.
    """
    found = await asyncio.gather(*(model.compute_logprobs(tokens) for tokens, _ in read))
    for (tokens, _), values in zip(read, found, strict=True):
        if len(values) != len(tokens):
            raise AlgorithmError(f"the {who} gave {len(values)} logprobs for {len(tokens)} tokens")
    return [np.asarray(values, np.float64)[asked] for (_, asked), values in zip(read, found, strict=True)]


def comparable(
    theirs: Sequence[NDArray[Any]], ours: Sequence[NDArray[np.float64]], *, who: str
) -> Comparable:
    """Make every logprob of a second model a number that can be compared.

    Args:
        theirs: [n] each, of the sampled tokens; NaN where it didn't say.
        ours: the sampler's own, [n] each.
        who: says it, for messages.

    Raises:
        AlgorithmError: it says nothing of any token.
    """
    found: list[NDArray[np.float64]] = []
    tokens = bounded = unknown = 0
    lowest = IMPOSSIBLE
    for values in theirs:
        told = np.asarray(values, np.float64)
        lowest = float(np.min(told, initial=lowest, where=told > LEAST_LOGPROB))
    for values, own in zip(theirs, ours, strict=True):
        told = np.asarray(values, np.float64)
        missing, impossible = np.isnan(told), told <= LEAST_LOGPROB
        tokens += len(told)
        bounded += int(np.count_nonzero(impossible))
        unknown += int(np.count_nonzero(missing))
        found.append(np.where(missing, own, np.where(impossible, lowest, told)))
    if tokens and unknown == tokens:
        raise AlgorithmError(
            f"the {who} returns no logprob for any of {tokens} tokens: all are NaN",
            hint=f"look at the {who}'s weights and its backend",
        )
    return Comparable(logprobs=found, tokens=tokens, bounded=bounded, unknown=unknown)
