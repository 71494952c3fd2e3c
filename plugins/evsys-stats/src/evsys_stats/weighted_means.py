"""Bounds of the mean of bounded values that hold when hardly any of them differ: a bootstrap that weighs what wasn't seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNSEEN_WEIGHT", "WeightedMeans", "weighted_means"]

UNSEEN_WEIGHT = 0.5
"""The weight of an unseen unit with the worst value: with 1 the bounds of a proportion are Clopper & Pearson's,
with 1/2 they are between those and no allowance, as the mid-p and Jeffreys' interval are.
"""

_CHUNK = 1_000


class WeightedMeans:
    """Weighted means of one comparison, sorted: those with the lowest unseen value, [B], and those with the highest, [B]."""

    def __init__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        self.low, self.high = np.sort(low), np.sort(high)

    def p_value(self, effect: float, mean: float) -> float:
        """Two-sided p of the true mean being `mean`, given the `effect` seen."""
        if mean < effect:
            tail = np.searchsorted(self.low, mean, side="right") / len(self.low)
        else:
            tail = 1.0 - np.searchsorted(self.high, mean, side="left") / len(self.high)
        return min(1.0, 2.0 * float(tail))


def weighted_means(
    sums: Sequence[NDArray[np.float64]],
    sizes: Sequence[NDArray[np.float64]],
    scales: Sequence[float],
    *,
    draws: int = 10_000,
    seed: int = 0,
) -> list[WeightedMeans]:
    """Draw weighted means of comparisons that have as many clusters, G; they share the weights.

    Each cluster has an exponential weight (Rubin 1981, "The Bayesian bootstrap"), and so has one cluster of average size that wasn't
    seen, with the least or the greatest value that there can be (Gaffke 2005, "Three test statistics for a nonparametric
    one-sided hypothesis on the mean of a nonnegative variable"); it weighs `UNSEEN_WEIGHT`.

    Args:
        sums: of each comparison the sum of the differences in each cluster, [G].
        sizes: the tasks in each cluster, [G].
        scales: the largest difference that a task can have.
        draws: weighted means of each.
        seed: of the weights.
    """
    groups = len(sums[0])
    columns = np.stack([*sums, *sizes], axis=1).astype(np.float32)
    typical = np.array([size.mean() for size in sizes])
    extreme = typical * np.asarray(scales)
    pieces: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for weights, unseen in _weights(groups, draws, seed):
        products = (weights @ columns).astype(np.float64)
        total, size = np.split(products, 2, axis=1)
        size += unseen[:, None] * typical
        pieces.append(
            ((total - unseen[:, None] * extreme) / size, (total + unseen[:, None] * extreme) / size)
        )
    low, high = (np.concatenate(side) for side in zip(*pieces, strict=True))
    return [WeightedMeans(low[:, i], high[:, i]) for i in range(len(sums))]


def _weights(groups: int, draws: int, seed: int) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float64]]]:
    rng = np.random.default_rng([seed, 1])
    for start in range(0, draws, _CHUNK):
        rows = min(_CHUNK, draws - start)
        yield (
            rng.standard_exponential((rows, groups), dtype=np.float32),
            rng.standard_gamma(UNSEEN_WEIGHT, rows),
        )
