"""Corrections for several comparisons in one experiment: p-values and intervals that hold for all of them together.

All are single-step, so that a p-value and the interval alongside it say the same: a corrected p-value is at most the level exactly if the interval leaves
out no effect. Step-down p-values (Holm 1979) are smaller for all but the best arm, but have no intervals that agree with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_stats.paired import Flips, Paired

__all__ = ["BONFERRONI", "WESTFALL_YOUNG", "Corrected", "bonferroni", "corrected", "westfall_young"]

BONFERRONI = "bonferroni"
WESTFALL_YOUNG = "westfall-young"


@attrs.frozen(kw_only=True)
class Corrected:
    """The corrected p-values of the comparisons of a family, in their order.

    `count` comparisons were planned, and `method` is None if that is one. `single_level` is the level of one interval at which the intervals of all
    comparisons hold together, and the largest p-value of a single comparison that is significant after correction.
    """

    p_values: tuple[float, ...]
    method: str | None
    single_level: float
    count: int


def corrected(
    claims: Sequence[Paired], p_values: Sequence[float], *, family: int, level: float, at_zero: bool
) -> Corrected:
    """Correct p-values by Westfall & Young if all comparisons share their sign flips, by Bonferroni otherwise.

    Args:
        claims: the comparisons that could be made.
        p_values: one for each of them.
        family: the number of planned comparisons, including those that could not be made.
        level: the family-wise level of significance.
        at_zero: the p-values are those of no difference, or 1; sign flips say nothing about other differences.
    """
    count = max(len(claims), family)
    if count <= 1:
        return Corrected(p_values=tuple(p_values), method=None, single_level=level, count=count)
    flips = _shared_null([claim.flips for claim in claims]) if at_zero and len(claims) > 1 else None
    if flips is None:
        made, single = bonferroni(p_values, family=count), level / count
        return Corrected(p_values=tuple(made), method=BONFERRONI, single_level=single, count=count)
    made, single = westfall_young(flips, p_values, family=count, level=level)
    return Corrected(p_values=tuple(made), method=WESTFALL_YOUNG, single_level=single, count=count)


def _shared_null(flips: Sequence[Flips | None]) -> NDArray[np.float64] | None:
    """The p-values under the same sign patterns of the same units, [B, K]; None if any comparison has others."""
    known = [each for each in flips if each is not None and each.units is not None]
    if len(known) < len(flips) or any(each.units != known[0].units for each in known[1:]):
        return None
    return np.stack([each.p_values() for each in known], axis=1)


def westfall_young(
    flipped: NDArray[np.float64], p_values: Sequence[float], *, family: int | None = None, level: float = 0.05
) -> tuple[list[float], float]:
    """Corrected p-values from the joint distribution of p-values under no difference, and the level of one interval.

    The corrected p-value of a comparison is the share of sign patterns under which the smallest p-value of all comparisons is as small as its own
    (Westfall & Young 1993, "Resampling-Based Multiple Testing", single-step min P, equation 2.2). Comparisons that share a baseline are
    correlated, so this never exceeds Bonferroni's p-value. Smallest p-values take the place of largest t, because comparisons in which few tasks
    differ have other null distributions of t.

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
    smallest = np.sort(flipped.min(axis=1))
    shares = np.searchsorted(smallest, np.asarray(p_values) * (1 + 1e-9), side="right") / len(smallest)
    found = [
        min(1.0, (count + unmade) * p, max(share, p) + unmade * p)
        for share, p in zip(shares.tolist(), p_values, strict=True)
    ]
    return found, _single_level(smallest, unmade, level, count)


def _single_level(smallest: NDArray[np.float64], unmade: int, level: float, count: int) -> float:
    """The largest p-value whose corrected one is at most `level`, at least Bonferroni's."""
    found = level / (count + unmade)
    kinds, counts = np.unique(smallest, return_counts=True)
    share = 0.0
    for p, more in zip(kinds.tolist(), counts.tolist(), strict=True):
        # Below the next smallest p-value of a pattern, the share of patterns stays what it is.
        if share <= level:
            within = (level - share) / unmade if unmade else level
            found = max(found, min(p * (1 - 2e-9), within, level / (1 + unmade)))
        share += more / len(smallest)
    return found


def bonferroni(p_values: Sequence[float], *, family: int | None = None) -> list[float]:
    """Corrected p-values, in the order given: each times the number of comparisons.

    Args:
        p_values: of the comparisons that could be made.
        family: the number of planned comparisons; each that could not be made counts as not significant.
    """
    count = max(len(p_values), family or 0)
    return [min(1.0, count * p) for p in p_values]
