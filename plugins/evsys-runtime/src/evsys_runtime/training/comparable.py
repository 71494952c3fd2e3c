"""What a second model says of tokens that were sampled by the first, made fit to be compared with it.

A teacher or a reference may find impossible what the model has said: minus infinity, by which one token would outweigh all others, or
make all weights NaN. And a service may not say. Both are rare, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys_runtime.training.trajectories import LEAST_LOGPROB

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IMPOSSIBLE", "Comparable", "comparable"]

IMPOSSIBLE = -50.0
"""Nats, 2e-22. What a model finds impossible counts as this unlikely, or as the least likely of what it gives a number."""


@attrs.frozen(kw_only=True, eq=False)
class Comparable:
    """What was said of some sequences.

    Attributes:
        logprobs: [n] each, finite.
        tokens: how many in all.
        bounded: how many of them it finds impossible.
        unknown: of how many nothing is known; they count as if both models agreed.
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


def comparable(
    theirs: Sequence[NDArray[Any]], ours: Sequence[NDArray[np.float64]], *, who: str
) -> Comparable:
    """Make every logprob of a second model a number that can be compared.

    Args:
        theirs: [n] each, of the tokens that were sampled; NaN where it didn't say.
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
            f"the {who} says of none of {tokens} tokens how likely it is: its logprobs are NaN",
            hint=f"look at the {who}'s weights and its backend",
        )
    return Comparable(logprobs=found, tokens=tokens, bounded=bounded, unknown=unknown)
