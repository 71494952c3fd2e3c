"""Student's t distribution, which numpy doesn't have, for any degrees of freedom, infinitely many included."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from evsys_stats.intervals import student_t_quantile, t_upper_tail

__all__ = ["studentized_maximum", "t_quantile", "two_sided_p"]

_MOST_FREEDOM = 1e7
"""Above so many degrees of freedom t is the normal distribution."""


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for T of Student's distribution with `freedom` degrees, not necessarily a whole number."""
    if freedom > _MOST_FREEDOM:
        return math.erfc(abs(t) / math.sqrt(2.0))
    return 2.0 * t_upper_tail(abs(t), freedom)


def t_quantile(probability: float, freedom: float) -> float:
    """The t below which T lies with `probability`, at least 1/2."""
    if freedom > _MOST_FREEDOM:
        return NormalDist().inv_cdf(probability)
    return student_t_quantile(probability, freedom)


@lru_cache(maxsize=64)
def studentized_maximum(count: int, freedom: int, level: float) -> float:
    """The value that the largest of `count` independent |t| with a shared error of `freedom` degrees exceeds with
    probability `level`.

    It holds for correlated ones as well (Sidak 1967). With one it is Student's quantile. Source: Stoline & Ury
    1979, "Tables of the studentized maximum modulus distribution".
    """
    errors = [
        (i + 0.5) * 4.0 / 400 for i in range(400)
    ]  # of a true error of 1; beyond 4 there is nothing left
    logs = [(freedom - 1) * math.log(s) - freedom * s * s / 2 for s in errors]
    weights = [math.exp(each - max(logs)) for each in logs]

    def exceeded(limit: float) -> float:
        inside = (
            w * math.erf(limit * s / math.sqrt(2.0)) ** count for w, s in zip(weights, errors, strict=True)
        )
        return 1.0 - math.fsum(inside) / math.fsum(weights)

    low, high = 0.0, 1.0
    while exceeded(high) > level:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeded(middle) > level else (low, middle)
    return high
