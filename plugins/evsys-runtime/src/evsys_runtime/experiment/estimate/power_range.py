"""The power of a verdict over what isn't known before a run: how the scores of two arms go together, the base rate, how far runs differ.

Scores are on a scale from 0 to 1, and an effect is an improvement. The verdict studentises a difference by its second moment under the null
hypothesis, so with a variance v of one difference and an effect e it has to exceed `z(1 - level/2) sqrt((v + e²) / n)`, and comes up with a
standard error of `sqrt(v / n)`: Miettinen 1968, "The matched pairs design in the case of all-or-none responses". With runs of a recipe the three
tests of `verdict.recipe` are simulated, since the permutation of a few seeds has no such formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import NormalDist

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_stats.power import POWER, least_share, needed_units
from evsys_stats.recipe import permutation_floor
from evsys_stats.student import t_quantile

__all__ = ["PlannedTest", "PowerRange", "Unknowns", "power_range", "runs_needed", "tasks_needed"]

type Range = tuple[float, float]

_DRAWS = 2_000
_MOST_SPLITS = 300
"""With more ways to share the seeds among two arms, Student's t is as good as their permutation."""

_MOST_TIMES = 1e6
_MOST_RUNS = 64
_FREEDOMS = np.array([1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60, 200, 1e7])


@attrs.frozen(kw_only=True)
class Unknowns:
    """The ranges of what isn't known.

    Attributes:
        correlation: of the scores of two arms on a task.
        base_rate: the baseline's mean score.
        base_variance: of the baseline's scores by task; None for the largest that its mean allows.
        difference: the variance of the difference of two arms on a task as experiments on record show it; None to
            derive it from the others.
        deviation: the standard deviation of the mean of a training run.
    """

    correlation: Range = (0.0, 0.7)
    base_rate: Range = (0.0, 1.0)
    base_variance: Range | None = None
    difference: Range | None = None
    deviation: Range = (0.0, 0.0)


@attrs.frozen(kw_only=True)
class PlannedTest:
    """A planned comparison.

    Attributes:
        units: independent tasks, or clusters of equal size.
        runs: of each trained side.
        trained: whether the baseline is trained as well.
        level: of significance of this comparison.
        of_recipe: the claim is about recipes.
        known: the run-to-run deviation that the verdict would take from the record, and its degrees of freedom;
            None for the runs' own.
        exact_binary: it is known to be McNemar's test.
        may_be_exact: it is, or it isn't known.
        at_zero: the arms are equal in truth, for claims that a margin isn't reached.
        both_sides: it has to be excluded on both sides, for a claim of equality.
    """

    units: float
    runs: int
    trained: bool
    level: float
    of_recipe: bool = False
    known: tuple[float, float] | None = None
    exact_binary: bool = False
    may_be_exact: bool = False
    at_zero: bool = False
    both_sides: bool = False


@attrs.frozen(kw_only=True)
class PowerRange:
    """`safe` is the distance from the boundary of the claim shown with at least 80 % power over all of what isn't known,
    `best` the one at best; None if there is none. `low` and `high` are the powers at `safe`.
    """

    safe: float | None
    best: float | None
    low: float | None
    high: float | None


@attrs.frozen(kw_only=True)
class _Setting:
    """One value of each unknown. `noise` is the part of a side's variance that sampling makes, which differs between its runs."""

    correlation: float
    base_rate: float
    base_variance: float | None
    difference: float | None
    deviation: float
    noise: float

    def sides(self, effect: float) -> tuple[float, float]:
        """The variance of one run's scores by task, of the arm and of the baseline."""
        after = min(1.0, self.base_rate + effect)
        of_rate = self.base_rate * (1.0 - self.base_rate)
        base = of_rate if self.base_variance is None else min(of_rate, self.base_variance)
        return after * (1.0 - after), base

    def shared_variance(self, effect: float) -> float:
        """The variance of the difference on a task that all runs have in common."""
        if self.difference is not None:
            return max(self.difference, effect * (1.0 - effect))
        arm, base = self.sides(effect)
        # All or nothing, an effect comes from at least as many tasks as it is large.
        least = effect * (1.0 - effect) * (1.0 - self.noise)
        return max(least, (arm + base) * (1.0 - self.noise) - 2.0 * self.correlation * math.sqrt(arm * base))


def power_range(test: PlannedTest, unknowns: Unknowns, boundary: float = 0.0) -> PowerRange:
    """The distances from a boundary that a test shows, and its power.

    Args:
        test: what is planned.
        unknowns: what isn't known.
        boundary: the effect from which the claim is distinguished.
    """
    safe = _distance(lambda d: _lowest(test, unknowns, boundary, d), test, boundary)
    if safe is None:
        return PowerRange(safe=None, best=None, low=None, high=None)
    best = _distance(lambda d: _highest(test, unknowns, boundary, d), test, boundary)
    return PowerRange(
        safe=safe,
        best=best,
        low=_lowest(test, unknowns, boundary, safe),
        high=_highest(test, unknowns, boundary, safe),
    )


def tasks_needed(test: PlannedTest, unknowns: Unknowns, boundary: float, distance: float) -> float | None:
    """How many times the units show a distance with at least 80 % power; None if no number of them does."""

    def enough(times: float) -> bool:
        more = attrs.evolve(test, units=test.units * times)
        found = needed_units(test.level, exact_binary=test.exact_binary)
        if more.units < found or least_share(math.floor(more.units), found) > distance:
            return False
        return _lowest(more, unknowns, boundary, distance) >= POWER

    low, high = 1.0 / test.units, _MOST_TIMES
    if not enough(high):
        return None
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def runs_needed(test: PlannedTest, unknowns: Unknowns, boundary: float, distance: float) -> int | None:
    """How many runs of each recipe show a distance with at least 80 % power on these tasks; None if no number up to 64 does."""
    low, high = test.runs, _MOST_RUNS

    def enough(runs: int) -> bool:
        return _lowest(attrs.evolve(test, runs=runs, known=None), unknowns, boundary, distance) >= POWER

    if low >= high or not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _distance(power: Callable[[float], float], test: PlannedTest, boundary: float) -> float | None:
    """The smallest distance with 80 % power, rounded up by less than half a percent."""
    needed = needed_units(test.level, exact_binary=test.exact_binary)
    if test.units < needed:
        return None
    low, high = least_share(math.floor(test.units), needed) - 1e-9, 1.0 - max(0.0, boundary)
    if low >= high or power(high) < POWER:
        return None
    if power(low) >= POWER:
        return low
    while high - low > 0.005 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _lowest(test: PlannedTest, unknowns: Unknowns, boundary: float, distance: float) -> float:
    """The power where scores spread the most."""
    effect = 0.0 if test.at_zero else boundary + distance
    low, high = unknowns.base_rate
    # Where both sides spread the most together, and where the arm alone does.
    rates = tuple(min(max(rate, low), high) for rate in ((1.0 - effect) / 2, 0.5 - effect))
    return min(
        _power(test, setting, effect, distance) for setting in _settings(test, unknowns, 0, rates, worst=True)
    )


def _highest(test: PlannedTest, unknowns: Unknowns, boundary: float, distance: float) -> float:
    """The power where scores spread the least."""
    effect = 0.0 if test.at_zero else boundary + distance
    rates = tuple(min(rate, max(0.0, 1.0 - effect)) for rate in unknowns.base_rate)
    return max(
        _power(test, setting, effect, distance)
        for setting in _settings(test, unknowns, 1, rates, worst=False)
    )


def _settings(
    test: PlannedTest, unknowns: Unknowns, end: int, rates: tuple[float, ...], *, worst: bool
) -> Iterator[_Setting]:
    """The settings at one end of all ranges, with the noise that the correlation leaves room for."""
    correlation = unknowns.correlation[end]
    most = 1.0 - correlation
    noises = (0.0, most / 2, most) if test.of_recipe and unknowns.difference is None else (0.0,)
    for rate, noise in itertools.product(dict.fromkeys(rates), noises):
        yield _Setting(
            correlation=correlation,
            base_rate=rate,
            base_variance=None if unknowns.base_variance is None else unknowns.base_variance[worst],
            difference=None if unknowns.difference is None else unknowns.difference[worst],
            deviation=unknowns.deviation[worst],
            noise=noise,
        )


@attrs.frozen(kw_only=True)
class _Errors:
    """The squared errors of a difference of means: by task and by what both tasks and runs count; and the sds of one run's mean, by side."""

    shared: float
    by_task: float
    both: float
    arm_run: float
    base_run: float


def _errors(test: PlannedTest, setting: _Setting, effect: float) -> _Errors:
    arm, base = setting.sides(effect)
    n, runs, noise = test.units, test.runs, setting.noise
    if setting.difference is not None:
        noise = 0.0  # the difference on record has it
    of_runs = (arm + base * test.trained) * noise / runs / n
    shared = setting.shared_variance(effect) / n + (0.0 if test.trained else base * noise / n)
    return _Errors(
        shared=shared,
        by_task=shared + of_runs,
        both=of_runs,
        arm_run=math.sqrt(setting.deviation**2 + arm * noise / n),
        base_run=math.sqrt(setting.deviation**2 + base * noise / n) if test.trained else 0.0,
    )


def _power(test: PlannedTest, setting: _Setting, effect: float, distance: float) -> float:
    """The probability to detect a distance from the boundary, `effect` away from no effect."""
    errors = _errors(test, setting, effect)
    if test.of_recipe and test.known is None:
        one_sided = _simulate_power(test, errors, distance)
    else:
        normal, sides = NormalDist(), 1.0 + test.trained
        by_seed = sides * setting.deviation**2 / test.runs if test.of_recipe else 0.0
        limit = _checkpoint_limit(test, errors, distance)
        if test.known is not None:
            limit = max(limit, _known_variance_limit(test, errors, test.known))
        error = math.sqrt(errors.by_task + by_seed)
        one_sided = normal.cdf((distance - limit) / error) if error > 0 else float(distance > limit)
    return max(0.0, 2.0 * one_sided - 1.0) if test.both_sides else one_sided


def _checkpoint_limit(test: PlannedTest, errors: _Errors, distance: float) -> float:
    """How far a difference has to be from the boundary for these very models to be distinguished."""
    of_exact = 1.0 / test.units if test.may_be_exact else 0.0  # its continuity correction
    z = NormalDist().inv_cdf(1.0 - test.level / 2)
    return of_exact + z * math.sqrt(errors.by_task + distance**2 / test.units)


def _known_variance_limit(test: PlannedTest, errors: _Errors, known: tuple[float, float]) -> float:
    """The same for recipes with a deviation from the record, see `verdict.recipe.errors_with`."""
    deviation, freedom = known
    by_seed = (1.0 + test.trained) * deviation**2 / test.runs
    total = by_seed + errors.by_task
    spread = by_seed**2 / freedom + errors.by_task**2 / max(1.0, test.units - 1)
    return t_quantile(1.0 - test.level / 2, total**2 / spread if spread > 0 else math.inf) * math.sqrt(total)


def _simulate_power(test: PlannedTest, errors: _Errors, distance: float) -> float:
    """The share of simulated experiments in which all three tests distinguish runs of an arm from those of the
    baseline.
    """
    runs = test.runs
    arm, base, of_tasks = _normal_draws(runs)
    arm = arm * errors.arm_run + (distance + of_tasks * math.sqrt(errors.shared))[:, None]
    base = base * errors.base_run
    seen = arm.mean(axis=1) - base.mean(axis=1)
    parts = [side.var(axis=1, ddof=1) / runs for side in ((arm, base) if test.trained else (arm,))]
    by_seed = np.sum(parts, axis=0)
    total = np.maximum(np.maximum(by_seed, errors.by_task), by_seed + errors.by_task - errors.both)
    spread = np.sum([part**2 / (runs - 1) for part in parts], axis=0)
    spread += errors.by_task**2 / max(1.0, test.units - 1)
    freedom = total**2 / np.maximum(spread, 1e-300)
    found = seen > _t_limits(freedom, test.level) * np.sqrt(total)
    found &= seen > _checkpoint_limit(test, errors, distance)
    if test.trained and permutation_floor(runs, runs) <= test.level:
        found &= _permutation_significance(arm, base, test.level)
    return float(found.mean())


def _permutation_significance(
    arm: NDArray[np.float64], base: NDArray[np.float64], level: float
) -> NDArray[np.bool_]:
    """Whether the permutation of seeds is significant, [B], see `verdict.recipe.seed_permutation`."""
    runs = arm.shape[1]
    if math.comb(2 * runs, runs) > _MOST_SPLITS:
        pooled = (arm.var(axis=1, ddof=1) + base.var(axis=1, ddof=1)) / runs
        limit = t_quantile(1.0 - level / 2, 2 * runs - 2) * np.sqrt(pooled)
        return np.asarray(arm.mean(axis=1) - base.mean(axis=1) > limit)
    moved = np.concatenate([arm, base], axis=1)
    sums = moved @ _splits(runs).T
    means = np.abs(2.0 * sums - moved.sum(axis=1, keepdims=True))
    observed = np.abs(arm.sum(axis=1) - base.sum(axis=1))
    return np.asarray((means >= observed[:, None] - 1e-12).mean(axis=1) <= level)


@lru_cache(maxsize=4)
def _splits(runs: int) -> NDArray[np.float64]:
    """The ways to share all runs among two arms, [K, 2 runs], a 1 for each of the first run's arm: the other half mirrors them."""
    chosen = [(0, *rest) for rest in itertools.combinations(range(1, 2 * runs), runs - 1)]
    found = np.zeros((len(chosen), 2 * runs))
    for row, runs_chosen in zip(found, chosen, strict=True):
        row[list(runs_chosen)] = 1.0
    return found


@lru_cache(maxsize=8)
def _normal_draws(runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The same for all distances, so that the power rises with them: of runs, [B, runs] each, and of tasks, [B]."""
    rng = np.random.default_rng(runs)
    return (
        rng.standard_normal((_DRAWS, runs)),
        rng.standard_normal((_DRAWS, runs)),
        rng.standard_normal(_DRAWS),
    )


@lru_cache(maxsize=64)
def _t_table(level: float) -> NDArray[np.float64]:
    return np.array([t_quantile(1.0 - level / 2, float(freedom)) for freedom in _FREEDOMS])


def _t_limits(freedom: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Quantiles of Student's t, interpolated in the inverse of its degrees of freedom."""
    inverse = 1.0 / np.clip(freedom, _FREEDOMS[0], _FREEDOMS[-1])
    return np.interp(inverse, 1.0 / _FREEDOMS[::-1], _t_table(level)[::-1])
