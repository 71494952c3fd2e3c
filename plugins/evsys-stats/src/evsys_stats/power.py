"""The power of a comparison: the smallest effect that it detects, and how many tasks would settle it.

A standard error is estimated from the differences that came up. If fewer units (tasks, or clusters) differ than the
test needs for significance, that estimate is not evidence, zero least of all; the design counts instead: its number
of units, and the share of them that would have to differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import NormalDist

from evsys_stats.binary_pairs import mcnemar
from evsys_stats.paired import Paired, Seeds, satterthwaite
from evsys_stats.student import t_quantile

__all__ = [
    "POWER",
    "detectable",
    "fewest_runs",
    "least_share",
    "needed_units",
    "runs_to_show",
    "smallest_p",
    "smallest_p_of",
    "tasks_to_place",
    "tasks_to_show",
]

POWER = 0.8
MOST_UNITS = 10_000_000
MOST_RUNS = 1_000
"""More training runs of a recipe than this are not recommended."""


def smallest_p(paired: Paired, units: int | None = None) -> float:
    """The p-value when `units` units (by default all there are) differ, all in one direction: no design gives less."""
    return smallest_p_of(paired.clusters if units is None else units, exact_binary=paired.exact_binary)


def smallest_p_of(units: int, *, exact_binary: bool) -> float:
    """The p-value when so many units differ, all in one direction."""
    return mcnemar(units, 0) if exact_binary else min(1.0, 2.0 ** (1 - units))


def detectable(paired: Paired, level: float = 0.05) -> float | None:
    """The smallest effect found with 80 % power by a two-sided test at `level`.

    With the usual approximation that is `(z(1 - level/2) + z(0.8))` standard errors, 2.8 of them at 5 %, and of a
    claim about recipes the same with Student's t. If that error is not evidence, it is at least the share of units
    that must truly differ so that enough of them come up. None: this design can't detect any effect, since all
    units differing in one direction wouldn't be significant.
    """
    needed = _discordant_needed(paired, level)
    if needed > paired.clusters:
        return None
    freedom = math.inf if paired.seeds is None else paired.seeds.freedom
    by_error = _multiplier(level, freedom) * paired.standard_error
    if not _is_floor(paired, needed):
        return by_error
    return max(by_error, least_share(paired.clusters, needed) * paired.scale)


def tasks_to_show(paired: Paired, effect: float, level: float = 0.05) -> int:
    """About how many tasks, clustered as these are, detect `effect` (above 0) with 80 % power at `level`."""
    needed = _discordant_needed(paired, level)
    units = paired.clusters * (_multiplier(level) * paired.standard_error / effect) ** 2
    if _is_floor(paired, needed):
        target = effect / paired.scale
        units = max(units, _smallest(needed, lambda n: least_share(n, needed) <= target))
    return _tasks(paired, max(units, needed))


def runs_to_show(paired: Paired, effect: float, level: float = 0.05) -> int | None:
    """About how many training runs of each recipe detect `effect` (above 0) with 80 % power on the tasks that there are.

    None where no number of them does, since the tasks alone leave too much open; or where the claim isn't about recipes.
    """
    seeds = paired.seeds
    if seeds is None or _multiplier(level) ** 2 * seeds.by_task >= effect**2:
        return None
    fewest = seeds.runs[0] if seeds.runs else 1
    runs = _smallest(fewest + 1, lambda count: _detectable_with(seeds, count, level) <= effect)
    return runs if runs <= MOST_RUNS else None


def fewest_runs(
    effect: float,
    *,
    by_run: float,
    by_task: float,
    freedom: Callable[[int], float],
    level: float,
    among: Iterable[int],
) -> int | None:
    """The first number of training runs of each recipe that detects `effect` with 80 % power, two-sided at `level`; None if none does.

    Args:
        effect: the distance from what is excluded.
        by_run: the variance that one training run of each recipe adds to the difference of two recipes.
        by_task: the squared standard error of the difference that the tasks leave, however many runs there are.
        freedom: the degrees of freedom of `by_run` with so many runs.
        level: of significance.
        among: the numbers of runs to choose from, smallest first.
    """
    for runs in among:
        total = by_run / runs + by_task
        known = satterthwaite(total, [(by_run / runs, freedom(runs))])
        if _multiplier(level, known) * math.sqrt(total) <= effect:
            return runs
    return None


def _detectable_with(seeds: Seeds, runs: int, level: float) -> float:
    """The detectable effect with `runs` training runs of each recipe, at the same spread."""
    by_seed = seeds.by_seed * seeds.runs[0] / runs
    total = by_seed + seeds.by_task
    freedom = satterthwaite(total, [(by_seed, len(seeds.runs) * (runs - 1))])
    return _multiplier(level, freedom) * math.sqrt(total)


def tasks_to_place(paired: Paired, gap: float, level: float = 0.05) -> int | None:
    """About how many tasks narrow the interval of `level` to `gap` on either side; None where its width isn't known yet."""
    low, high = paired.interval(level, ())
    if gap <= 0 or not math.isfinite(high - low):
        return None
    if not _agree(paired):
        return _tasks(paired, paired.clusters * ((high - low) / 2 / gap) ** 2)
    # See `wild_bootstrap`: n units that all agree leave 1 - level^(1/n) of the range open.
    open_share = min(gap / paired.scale, 1 - 1e-9)
    return _tasks(paired, math.log(level) / math.log1p(-open_share))


def _tasks(paired: Paired, units: float) -> int:
    return math.ceil(min(units, MOST_UNITS) * paired.n / paired.clusters - 1e-9)


def _multiplier(level: float, freedom: float = math.inf) -> float:
    if math.isfinite(freedom):
        return t_quantile(1 - level / 2, freedom) + t_quantile(POWER, freedom)
    normal = NormalDist()
    return normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)


def _discordant_needed(paired: Paired, level: float) -> int:
    return needed_units(level, exact_binary=paired.exact_binary)


def needed_units(level: float, *, exact_binary: bool) -> int:
    """The fewest significant units at `level` when all of them differ in one direction."""
    return next(n for n in range(1, 1000) if smallest_p_of(n, exact_binary=exact_binary) <= level)


def _is_floor(paired: Paired, needed: int) -> bool:
    return paired.differing < needed or _agree(paired)


def _agree(paired: Paired) -> bool:
    """All units say the same, so there is no spread to estimate an error from."""
    return paired.standard_error <= 1e-12 * paired.scale


def least_share(units: int, needed: int) -> float:
    """The smallest share q for which at least `needed` of `units` differ with 80 % probability."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _tail_probability(units, needed, middle) >= POWER:
            high = middle
        else:
            low = middle
    return high


def _tail_probability(units: int, needed: int, share: float) -> float:
    """P(X >= needed) for X binomial with `units` trials of probability `share`."""
    if share >= 1.0:
        return 1.0
    missed = math.fsum(
        math.exp(
            math.log(math.comb(units, i))
            + (i * math.log(share) if i else 0.0)
            + (units - i) * math.log1p(-share)
        )
        for i in range(needed)
    )
    return 1.0 - missed


def _smallest(start: int, enough: Callable[[int], bool]) -> int:
    """The smallest number from `start` on for which `enough` holds, which stays true once it is."""
    high = start
    while not enough(high) and high < MOST_UNITS:
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
