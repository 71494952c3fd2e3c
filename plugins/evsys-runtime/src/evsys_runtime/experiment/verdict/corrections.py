"""Corrections for several comparisons in one experiment: p-values and intervals that hold for all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_runtime.experiment.verdict.paired import Flips, Paired

__all__ = ["HOLM", "WESTFALL_YOUNG", "Corrected", "corrected", "holm", "westfall_young"]

HOLM = "holm"
WESTFALL_YOUNG = "westfall-young"


@attrs.frozen(kw_only=True)
class Corrected:
    """The corrected p-values of the comparisons of a family, in their order.

    `count` comparisons were planned, and `method` is None if that is one. `level` is the level of one interval at which the intervals of all comparisons hold
    together.
    """

    p_values: tuple[float, ...]
    method: str | None
    level: float
    count: int


def corrected(
    claims: Sequence[Paired], p_values: Sequence[float], *, family: int, level: float, at_zero: bool
) -> Corrected:
    """Correct p-values by Westfall & Young if all comparisons share their sign flips, by Holm otherwise.

    Args:
        claims: the comparisons that could be made.
        p_values: one for each of them.
        family: the number of planned comparisons, including those that could not be made.
        level: the family-wise level of significance.
        at_zero: the p-values are those of no difference, or 1; sign flips say nothing about other differences.
    """
    count = max(len(claims), family)
    if count <= 1:
        return Corrected(p_values=tuple(p_values), method=None, level=level, count=count)
    flips = _shared([claim.flips for claim in claims]) if at_zero and len(claims) > 1 else None
    if flips is None:
        return Corrected(
            p_values=tuple(holm(p_values, family=count)), method=HOLM, level=level / count, count=count
        )
    made, single = westfall_young(flips, p_values, family=count, level=level)
    return Corrected(p_values=tuple(made), method=WESTFALL_YOUNG, level=single, count=count)


def _shared(flips: Sequence[Flips | None]) -> NDArray[np.float64] | None:
    """The p-values under the same sign patterns of the same units, [B, K]; None if any comparison has others."""
    known = [each for each in flips if each is not None and each.units is not None]
    if len(known) < len(flips) or any(each.units != known[0].units for each in known[1:]):
        return None
    return np.stack([each.p_values() for each in known], axis=1)


def westfall_young(
    flipped: NDArray[np.float64], p_values: Sequence[float], *, family: int | None = None, level: float = 0.05
) -> tuple[list[float], float]:
    """Step-down corrected p-values from the joint distribution of p-values under no difference, and the level of one interval.

    The corrected p-value of a comparison is the share of sign patterns under which the smallest p-value, its own or that of a less
    significant comparison, is as small as its own (Westfall & Young 1993, "Resampling-Based Multiple Testing", algorithm 2.8).
    Comparisons that share a baseline are correlated, so this never exceeds Holm's p-value. Smallest p-values take the place of largest t,
    because comparisons in which few tasks differ have other null distributions of t.

    Args:
        flipped: the p-value of each comparison under each sign pattern, the observed one included, [B, K].
        p_values: observed, [K].
        family: the number of planned comparisons; each that could not be made adds its share, as Bonferroni's correction does.
        level: the family-wise level.

    Returns:
        The corrected p-values, and the largest level of single intervals that hold together with probability 1 - `level`.
    """
    count = len(p_values)
    unmade = max(0, (family or 0) - count)
    order = sorted(range(count), key=lambda i: p_values[i])
    # The smallest p-value among a comparison and those after it, from the last one forward.
    smallest = np.minimum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    found, running = [0.0] * count, 0.0
    for rank, index in enumerate(order):
        p = p_values[index]
        share = float(np.mean(smallest[:, rank] <= p * (1 + 1e-9)))
        running = max(running, min(1.0, max(share, p) + unmade * p))
        found[index] = running
    return found, _single_level(np.sort(smallest[:, 0]), unmade, level, count)


def _single_level(smallest: NDArray[np.float64], unmade: int, level: float, count: int) -> float:
    """The largest p-value whose corrected one is at most `level`, at least Bonferroni's."""
    shares = np.searchsorted(smallest, smallest * (1 + 1e-9), side="right") / len(smallest)
    enough = smallest[shares + unmade * smallest <= level]
    return max(level / (count + unmade), float(enough[-1]) if len(enough) else 0.0)


def holm(p_values: Sequence[float], *, family: int | None = None) -> list[float]:
    """Holm 1979: step-down corrected p-values, in the order given.

    Args:
        p_values: of the comparisons that could be made.
        family: the number of planned comparisons; each that could not be made counts as not significant.
    """
    count = max(len(p_values), family or 0)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        found[index] = running
    return found
