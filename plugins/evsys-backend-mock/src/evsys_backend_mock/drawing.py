"""Drawing a token from logprobs of columns, as if from those of the whole vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evsys_backend_mock.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import SamplingParams

__all__ = ["GREEDY", "Drawing"]

GREEDY = 0.01
"""Below this temperature a draw is greedy: the weights of all but the likeliest token vanish in float64."""


class Drawing:
    """Draws with the sampling parameters of a call. `columns` are logprobs of the columns of one position."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._shared: dict[float, NDArray[np.float64]] = {}

    def draw(
        self, columns: NDArray[np.float64], params: SamplingParams, rng: np.random.Generator
    ) -> tuple[int, float]:
        """A token and its logprob at temperature 1. Takes one number of the stream, or none when greedy."""
        if params.temperature < GREEDY:
            token = next(iter(self.likeliest(columns, 1)))
        elif params.top_k is not None or params.top_p < 1.0:
            token = self._filtered(columns, params, rng)
        else:
            token = self._any(columns, params.temperature, rng.random())
        vocabulary = self._vocabulary
        return token, float(columns[vocabulary.column[token]] + vocabulary.within[token])

    def likeliest(self, columns: NDArray[np.float64], k: int) -> dict[int, float]:
        """The k likeliest tokens with their logprobs, the likeliest first; of equal ones the smaller id first."""
        vocabulary = self._vocabulary
        tokens = np.sort(np.concatenate([vocabulary.own, vocabulary.shared[:k]]))
        logprobs = columns[vocabulary.column[tokens]] + vocabulary.within[tokens]
        best = np.argsort(-logprobs, kind="stable")[:k]
        return {int(tokens[i]): float(logprobs[i]) for i in best}

    def _any(self, columns: NDArray[np.float64], temperature: float, uniform: float) -> int:
        """Invert the cumulative distribution over the columns, then over the shared tokens where it ends there."""
        shared = self._cumulative(temperature)
        scaled = columns / temperature
        weights = np.exp(scaled - scaled.max())
        weights[0] *= shared[-1] if len(shared) else 0.0
        cumulative = np.cumsum(weights)
        place = uniform * cumulative[-1]
        column = int(np.searchsorted(cumulative, place, side="right"))
        if column > 0:
            return int(self._vocabulary.own[min(column, len(columns) - 1) - 1])
        index = int(np.searchsorted(shared, place / cumulative[0] * shared[-1], side="right"))
        return int(self._vocabulary.shared[min(index, len(shared) - 1)])

    def _cumulative(self, temperature: float) -> NDArray[np.float64]:
        """Sums of `exp(logprob within the column / temperature)` over the shared tokens."""
        if temperature not in self._shared:
            within = self._vocabulary.within[self._vocabulary.shared]
            self._shared[temperature] = np.cumsum(np.exp(within / temperature))
        return self._shared[temperature]

    def _filtered(
        self, columns: NDArray[np.float64], params: SamplingParams, rng: np.random.Generator
    ) -> int:
        """Among the k likeliest; of those in the smallest set that has the share `top_p` at this temperature."""
        size = len(self._vocabulary.base)
        best = self.likeliest(columns, size if params.top_k is None else min(params.top_k, size))
        scaled = np.array(list(best.values())) / params.temperature
        cumulative = np.cumsum(np.exp(scaled - scaled[0]))
        kept = 1 + int(np.searchsorted(cumulative[:-1], params.top_p * cumulative[-1], side="left"))
        index = int(np.searchsorted(cumulative[:kept], rng.random() * cumulative[kept - 1], side="right"))
        return list(best)[min(index, kept - 1)]
