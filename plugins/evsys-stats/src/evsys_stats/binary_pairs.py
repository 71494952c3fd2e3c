"""Two arms on tasks with one 0/1 outcome each: exact at no difference, by the score test at any other."""

from __future__ import annotations

import math

__all__ = ["MID_P_BELOW", "mcnemar", "paired_proportions_p", "tango_z"]

MID_P_BELOW = 25
"""With fewer tasks that differ, McNemar's p-value is the mid-p."""


def mcnemar(better: int, worse: int) -> float:
    """Two-sided exact p for `better` against `worse` discordant tasks; mid-p below 25 of them.

    Source: McNemar 1947; mid-p after Fagerland, Lydersen & Laake 2013.
    """
    n, k = better + worse, min(better, worse)
    if n == 0:
        return 1.0
    outcomes = 1 << n
    tail = sum(math.comb(n, i) for i in range(k + 1)) / outcomes
    p = 2.0 * tail
    if n < MID_P_BELOW:
        p -= math.comb(n, k) / outcomes
    return min(1.0, p)


def tango_z(better: int, worse: int, n: int, difference: float) -> float:
    """The score statistic of a difference of paired proportions against `difference`, between -1 and 1.

    Its standard error is the one under that difference, so it also holds when hardly a task differs. Source: Tango 1998,
    "Equivalence test and confidence interval for the difference in proportions for the paired-sample design".
    """
    if difference < 0:
        return -tango_z(worse, better, n, -difference)
    distance = better - worse - n * difference
    if abs(distance) <= 1e-9 * n:
        return 0.0
    a = 2.0 * n
    b = -better - worse + (2.0 * n - better + worse) * difference
    c = -worse * difference * (1.0 - difference)
    worse_share = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
    variance = n * (2.0 * worse_share + difference * (1.0 - difference))
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def paired_proportions_p(better: int, worse: int, n: int, difference: float) -> float:
    """Two-sided p of a difference of paired proportions against `difference`, by the score test."""
    if abs(difference) >= 1.0:
        return float(abs(better - worse - n * difference) <= 1e-9 * n)
    return math.erfc(abs(tango_z(better, worse, n, difference)) / math.sqrt(2.0))
