"""Student's t distribution, which numpy doesn't have."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["t_quantile", "two_sided_p"]

_MOST_FREEDOM = 1e7
"""Above so many degrees of freedom t is the normal distribution."""


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for T of Student's distribution with `freedom` degrees, not necessarily a whole number."""
    if math.isinf(t):
        return 0.0
    if freedom > _MOST_FREEDOM:
        return math.erfc(abs(t) / math.sqrt(2.0))
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def t_quantile(probability: float, freedom: float) -> float:
    """The t below which T lies with `probability`, at least 1/2."""
    if freedom > _MOST_FREEDOM:
        return NormalDist().inv_cdf(probability)
    tail, low, high = 2.0 * (1.0 - probability), 0.0, 1.0
    while two_sided_p(high, freedom) > tail:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if two_sided_p(middle, freedom) > tail else (low, middle)
    return (low + high) / 2.0


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b): DLMF 8.17.22, evaluated by Lentz's method."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # beyond, the fraction converges slowly
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    above = 1.0
    below = 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = below
    for m in range(1, 20_000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        before = fraction
        for coefficient in (even, odd):
            below = 1.0 / (1.0 + coefficient * below)
            above = 1.0 + coefficient / above
            fraction *= above * below
        if abs(fraction - before) <= 1e-15 * abs(fraction):
            break
    return scale * fraction / a
