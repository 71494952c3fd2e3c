"""Student's t distribution, which numpy doesn't have, for any degrees of freedom, infinitely many included."""

from __future__ import annotations

import math
from statistics import NormalDist

from evsys_runtime.evaluation.intervals import student_t_quantile, t_upper_tail

__all__ = ["t_quantile", "two_sided_p"]

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
