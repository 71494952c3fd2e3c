"""95 % intervals of a benchmark's metrics. The task is the unit: its samples are averaged first.

Formulas: standard error of a mean over tasks, and its clustered form, after Miller 2024 (arXiv:2411.00640); Wilson 1927
for a proportion; Efron's percentile bootstrap for metrics that are not a mean over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from evsys_stats.ranges import Range

__all__ = [
    "Interval",
    "bootstrap_interval",
    "mean_interval",
    "student_t_quantile",
    "t_upper_tail",
    "wilson_interval",
]

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Interval(NamedTuple):
    """Bounds and the name of the method that gave them."""

    low: float
    high: float
    method: str

    def within(self, possible: Range | None, value: float) -> Interval:
        """This interval without what isn't possible; `value`, which it is about, stays inside in any case."""
        if possible is None:
            return self
        low, high = min(possible[0], value), max(possible[1], value)
        return Interval(max(self.low, low), min(self.high, high), self.method)


def mean_interval(
    values: Mapping[str, float],
    clusters: Mapping[str, str] | None = None,
    *,
    binary: bool = False,
    possible: Range | None = None,
) -> Interval | None:
    """Interval of the mean of one value a task.

    Args:
        values: a value by task.
        clusters: the cluster of each task, where tasks belong together; a task that isn't in it is one by itself.
        binary: each value is one 0/1 outcome. Unclustered, that is a proportion and gets Wilson's interval.
        possible: the values that a task can have, where that is known; the interval stays within.

    Returns:
        None where there are too few tasks or clusters to say anything.
    """
    groups = _groups(values, clusters or {})
    if not groups:
        return None
    mean = math.fsum(values.values()) / len(values)
    if binary and len(groups) == len(values) and set(values.values()) <= {0.0, 1.0}:
        return Interval(*wilson_interval(mean * len(groups), len(groups)), "wilson")
    if len(set(values.values())) == 1:
        return _of_agreement(groups[0][0], len(groups), possible)
    if len(groups) < 2:
        return None
    # CR1: with one task a cluster this is the plain standard error of a mean, sqrt(sum (s - m)^2 / (n (n - 1))).
    squares = math.fsum(math.fsum(value - mean for value in group) ** 2 for group in groups)
    error = math.sqrt(squares * len(groups) / (len(groups) - 1)) / len(values)
    quantile = student_t_quantile(0.5 + LEVEL / 2, len(groups) - 1)
    clustered = "" if len(groups) == len(values) else "clustered "
    scored = None if possible is None else _score_interval(mean, quantile * error, possible)
    if scored is not None:
        return Interval(*scored, f"{clustered}score")
    half = quantile * error
    return Interval(mean - half, mean + half, f"{clustered}t").within(possible, mean)


def _score_interval(mean: float, half: float, possible: Range) -> tuple[float, float] | None:
    """Wilson's interval at the number of 0/1 outcomes that would have this error (Korn & Graubard 1998).

    The t interval is symmetric, so of a mean near an end of its range it misses the truth too often: its error comes from
    values that hardly differ. None where the range isn't known, or the mean isn't inside of it.
    """
    width = possible[1] - possible[0]
    if not (math.isfinite(width) and possible[0] < mean < possible[1]):
        return None
    p = (mean - possible[0]) / width
    spread = (half / width) ** 2 / (p * (1.0 - p))
    centre = (p + spread / 2.0) / (1.0 + spread)
    reach = math.sqrt(spread * p * (1.0 - p) + spread**2 / 4.0) / (1.0 + spread)
    low, high = (possible[0] + width * end for end in (centre - reach, centre + reach))
    return min(low, mean), max(high, mean)


def _of_agreement(value: float, groups: int, possible: Range | None) -> Interval | None:
    """Interval of a mean when all tasks say the same: they show no spread to estimate an error from.

    No distribution on a range spreads further than the one that has only its ends, so a proportion between the ends gives
    bounds that hold. None without a finite range: then nothing is known of what other tasks would say.
    """
    low, high = possible or (0.0, 1.0)
    if not low <= value <= high or not math.isfinite(high - low) or low == high:
        return None
    below, above = wilson_interval((value - low) / (high - low) * groups, groups)
    found = Interval(low + below * (high - low), low + above * (high - low), "wilson")
    return found.within((low, high), value)


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion; (0, 1) for no trial."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def bootstrap_interval(
    tasks: Sequence[str],
    compute: Callable[[Sequence[str]], float],
    clusters: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of any metric over tasks, resampled with replacement, whole clusters at a time.

    Args:
        tasks: the tasks' ids.
        compute: the metric of a resampled list of ids, in which ids come several times.
        clusters: see `mean_interval`.
        seed: of the resampling.

    Returns:
        None for a single task or cluster, where more than a tenth of the draws give no finite number, or where all give
        the same one: no spread is not evidence that there is none.
    """
    import numpy as np

    groups = _groups({task: task for task in sorted(tasks)}, clusters or {})
    if len(groups) < 2:
        return None
    draws = max(200, min(1000, 200_000 // len(tasks)))
    picks = np.random.default_rng(seed).integers(0, len(groups), size=(draws, len(groups)))
    values = [compute([task for index in row for task in groups[index]]) for row in picks.tolist()]
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 0.9 * draws:
        return None
    if min(finite) == max(finite):
        return None
    low, high = np.quantile(finite, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Interval(float(low), float(high), "bootstrap")


def _groups[T](values: Mapping[str, T], clusters: Mapping[str, str]) -> list[list[T]]:
    grouped: dict[tuple[bool, str], list[T]] = {}
    for task, value in values.items():
        grouped.setdefault((task in clusters, clusters.get(task, task)), []).append(value)
    return list(grouped.values())


@lru_cache(maxsize=1024)
def student_t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t distribution for 0.5 <= p < 1, by Newton's method within bounds.

    Raises:
        ValueError: `p` or `df` out of range.
    """
    if not 0.5 <= p < 1.0 or df <= 0:
        raise ValueError(f"no quantile {p} of Student's t with {df} degrees of freedom")
    if p == 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while t_upper_tail(high, df) > 1.0 - p:
        low, high = high, high * 2
    found = (low + high) / 2
    for _ in range(200):
        surplus = t_upper_tail(found, df) - (1.0 - p)
        low, high = (found, high) if surplus > 0 else (low, found)
        step = found + surplus / _t_density(found, df)
        if not low < step < high:
            step = (low + high) / 2
        elif abs(step - found) <= 1e-9 * step:  # the error is squared with each step
            return step
        found = step
    return found


def _t_density(t: float, df: float) -> float:
    """The density of Student's t distribution."""
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))


def t_upper_tail(t: float, df: float) -> float:
    """P(T > t) for t >= 0: half the regularised incomplete beta function I_x(df/2, 1/2) at x = df / (df + t^2)."""
    return 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by its continued fraction (Abramowitz & Stegun 26.5.8), evaluated with Lentz's method."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d, fraction = 1.0, 0.0, 1.0
    for m in range(1000):
        numerator = 1.0 if m == 0 else _beta_term(a, b, x, m)
        d = 1.0 / (1.0 + numerator * d or tiny)
        c = (1.0 + numerator / c) or tiny
        fraction *= c * d
        if m and abs(c * d - 1.0) < 1e-15:
            break
    return front / a * (fraction - 1.0)


def _beta_term(a: float, b: float, x: float, m: int) -> float:
    half, odd = divmod(m, 2)
    if odd:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
