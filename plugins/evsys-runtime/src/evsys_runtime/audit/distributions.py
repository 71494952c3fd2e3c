"""Distributions that numpy lacks."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

__all__ = ["normal_two_sided", "studentized_maximum", "t_quantile", "t_two_sided"]

_NORMAL_ABOVE = 1e6
"""With more degrees of freedom Student's t differs from the normal distribution by less than rounding matters."""


def normal_two_sided(z: float) -> float:
    """P(|Z| >= |z|)."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def t_two_sided(t: float, freedom: float) -> float:
    """P(|T| >= |t|) of Student's distribution, the incomplete beta function I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t²)."""
    if freedom > _NORMAL_ABOVE:
        return normal_two_sided(t)
    x = freedom / (freedom + t * t)
    return _incomplete_beta(x, freedom / 2.0, 0.5)


def t_quantile(two_sided: float, freedom: float) -> float:
    """The t that |T| exceeds with this probability."""
    if freedom > _NORMAL_ABOVE:
        return NormalDist().inv_cdf(1.0 - two_sided / 2.0)
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > two_sided:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if t_two_sided(middle, freedom) > two_sided else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), by its power series or that of its complement, whichever converges."""
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta_series(1.0 - x, b, a)
    return _beta_series(x, a, b)


def _beta_series(x: float, a: float, b: float) -> float:
    """x^a (1 - x)^b / (a B(a, b)) * sum over n of (a + b)_n / (a + 1)_n x^n (Abramowitz & Stegun 26.5.4)."""
    if x <= 0.0:
        return 0.0
    logs = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    term = total = 1.0
    number = 0
    while term > 1e-17 * total:
        term *= (a + b + number) / (a + 1.0 + number) * x
        total += term
        number += 1
    return math.exp(logs) * total / a


def studentized_maximum(count: int, freedom: int, level: float) -> float:
    """The value that the largest of `count` independent |t| with one common error exceeds with probability `level`
    (Stoline & Ury 1979).

    The error s is chi / sqrt(freedom); its density is integrated by Gauss & Legendre over the range that matters.
    """
    nodes, weights = np.polynomial.legendre.leggauss(300)
    errors = (nodes + 1.0) * (0.5 * (1.0 + 12.0 / math.sqrt(2.0 * freedom)))
    logs = (freedom - 1) * np.log(errors) - freedom * errors**2 / 2.0
    density = np.exp(logs - logs.max()) * weights
    density /= density.sum()

    def exceeded(limit: float) -> float:
        inside = np.array([math.erf(limit * s / math.sqrt(2.0)) for s in errors]) ** count
        return 1.0 - float(density @ inside)

    low, high = 0.0, 1.0
    while exceeded(high) > level:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if exceeded(middle) > level else (low, middle)
    return high
