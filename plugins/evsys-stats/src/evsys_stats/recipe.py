"""Claims about recipes: would another training run of it be better, too? The unit of replication is the training seed."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys_stats.paired import (
    Paired,
    Seeds,
    cluster_sums,
    interval_end,
    satterthwaite,
    standard_error,
)
from evsys_stats.student import t_quantile, two_sided_p

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import RunDeviation

__all__ = [
    "MIN_SEEDS",
    "errors_with",
    "permutation_floor",
    "recipe_claim",
    "seed_permutation",
    "two_way_errors",
]

MIN_SEEDS = 4
"""With fewer training runs of a recipe nothing is said about the recipe, only about these runs."""

_MOST_SPLITS = 20_000
"""So many ways to share seeds among two arms are enumerated; where there are more, the two-way t serves alone."""


def permutation_floor(arm_runs: int, baseline_runs: int) -> float:
    """The smallest p-value of a two-sided exact permutation of seeds: 0.33 with 2 a side, 0.10 with 3, 0.029 with 4."""
    return (2 if arm_runs == baseline_runs else 1) / math.comb(arm_runs + baseline_runs, arm_runs)


def seed_permutation(arm: NDArray[np.float64], baseline: NDArray[np.float64], shift: float = 0.0) -> float:
    """Two-sided exact p of a difference of means other than `shift`, from the seeds' means, [S] and [T].

    Under the null the seeds are exchangeable; every way to share them among the arms is looked at (Fisher 1935; Pitman 1937).
    """
    moved = np.concatenate([arm - shift, baseline])
    sums = moved[_splits(len(moved), len(arm))].sum(axis=1)
    differences = np.abs(sums / len(arm) - (moved.sum() - sums) / len(baseline))
    observed = abs(float(moved[: len(arm)].mean() - moved[len(arm) :].mean()))
    return float(np.mean(differences >= observed - 1e-12 * (1.0 + np.abs(moved).max())))


@lru_cache(maxsize=4)
def _splits(seeds: int, chosen: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(seeds), chosen)))


@attrs.frozen(kw_only=True)
class _Side:
    """One arm's scores [S, n], NaN where a run has none, taken apart: task means, seeds' deviations, and squared errors."""

    tasks: NDArray[np.float64]
    seeds: NDArray[np.float64]
    by_seed: float
    by_both: float

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean of each seed, as if every run had scored every task."""
        return float(self.tasks.mean()) + self.seeds


def _side(scores: NDArray[np.float64], clusters: NDArray[np.int64]) -> _Side:
    runs, n = scores.shape
    tasks = np.nanmean(scores, axis=0)
    if runs == 1:
        return _Side(tasks=tasks, seeds=np.zeros(1), by_seed=0.0, by_both=0.0)
    residuals = scores - tasks
    seeds = np.nanmean(residuals, axis=1)
    seeds = seeds - seeds.mean()
    left = np.nan_to_num(residuals - seeds[:, None])
    sums = np.stack([cluster_sums(row, clusters)[0] for row in left])
    groups = sums.shape[1]
    correction = runs / (runs - 1) * groups / max(1, groups - 1)
    return _Side(
        tasks=tasks,
        seeds=seeds,
        by_seed=float(np.square(seeds).sum()) / (runs - 1) / runs,
        by_both=float(np.square(sums).sum()) * correction / (runs * n) ** 2,
    )


def two_way_errors(
    arm: NDArray[np.float64], baseline: NDArray[np.float64], clusters: NDArray[np.int64] | None = None
) -> tuple[float, Seeds]:
    """The squared standard error of a mean difference over seeds and tasks, and its parts.

    Seeds and tasks are both samples, so the squared errors by seed and by (clusters of) tasks add up, less what both count,
    the spread of single runs on single tasks: Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering",
    with each part unbiased for few seeds. Degrees of freedom after Satterthwaite 1946.

    Args:
        arm: scores of an arm, [S, n]; NaN where a run has none for a task.
        baseline: of the baseline, [T, n]; one row is a model without training runs.
        clusters: labels of tasks that belong together, [n].
    """
    labels = np.arange(arm.shape[1]) if clusters is None else np.asarray(clusters)
    sides = [_side(arm, labels), _side(baseline, labels)]
    sums, sizes = cluster_sums(sides[0].tasks - sides[1].tasks, labels)
    by_task = standard_error(sums, sizes, float(sums.sum() / sizes.sum())) ** 2
    by_seed = sum(side.by_seed for side in sides)
    total = max(by_seed, by_task, by_seed + by_task - sum(side.by_both for side in sides))
    runs = tuple(sorted(len(side.seeds) for side in sides if len(side.seeds) > 1))
    parts = [(side.by_seed, len(side.seeds) - 1) for side in sides]
    freedom = satterthwaite(total, [*parts, (by_task, max(1, len(sums) - 1))])
    return total, Seeds(by_seed=by_seed, by_task=by_task, freedom=freedom, runs=runs)


def errors_with(
    deviation: RunDeviation,
    arm: NDArray[np.float64],
    baseline: NDArray[np.float64],
    clusters: NDArray[np.int64] | None = None,
    *,
    trained: bool = True,
) -> tuple[float, Seeds]:
    """As `two_way_errors`, with a deviation between runs known from others; one run a side is enough.

    The squared error by seed is the squared deviation times 1/S + 1/T. Of it and that by task, both count the sampling of rollouts, whose
    part is subtracted.

    Args:
        deviation: of a run's score.
        arm: as there.
        baseline: as there.
        clusters: as there.
        trained: whether the baseline's rows are training runs; the starting weights don't differ.
    """
    _, seeds = two_way_errors(arm, baseline, clusters)
    runs = (len(arm), len(baseline)) if trained else (len(arm),)
    share = sum(1.0 / count for count in runs)
    by_seed = share * deviation.standard_deviation**2
    both = share * min(deviation.sampling_deviation, deviation.standard_deviation) ** 2
    labels = np.arange(arm.shape[1]) if clusters is None else np.asarray(clusters)
    total = max(by_seed, seeds.by_task, by_seed + seeds.by_task - both)
    parts = [(by_seed, deviation.freedom), (seeds.by_task, max(1, len(np.unique(labels)) - 1))]
    freedom = satterthwaite(total, parts)
    return total, attrs.evolve(seeds, by_seed=by_seed, freedom=freedom, runs=tuple(sorted(runs)))


def recipe_claim(
    checkpoint: Paired,
    arm: NDArray[np.float64],
    baseline: NDArray[np.float64],
    clusters: NDArray[np.int64] | None = None,
    *,
    sign: float = 1.0,
    level: float = 0.05,
    corrected_level: float = 0.05,
    largest: float | None = None,
    errors: tuple[float, Seeds] | None = None,
) -> Paired:
    """The claim about the recipes behind a comparison of their training runs, `checkpoint`.

    Three tests, of which the least certain one counts: the two-way t over seeds and tasks; the exact permutation of
    seeds where both arms have some and its floor isn't above `corrected_level`; and the comparison of these very
    runs, since a claim about a recipe is never more certain than one about its runs. The p-value is the largest of
    theirs, the interval holds all of theirs, so that the two agree.

    Args:
        checkpoint: the comparison of the means over runs, signed.
        arm: scores of each run, [S, n], unsigned; NaN for a task without one.
        baseline: likewise [T, n]; one row for a model that wasn't trained.
        clusters: [n] labels of tasks that belong together.
        sign: -1 where less is better.
        level: of the interval.
        corrected_level: of one comparison after correction for all.
        largest: the largest difference that there can be, beyond which no interval goes; None if unknown.
        errors: by a deviation known from other runs, see `errors_with`; None: by that of these runs.
    """
    total, seeds = errors or two_way_errors(arm, baseline, clusters)
    error, effect = math.sqrt(total), checkpoint.effect
    permutes = errors is None and permuted(len(arm), len(baseline), corrected_level)
    by_runs = "two-way t" if errors is None else "two-way t with a known run-to-run deviation"
    one, two = sign * _seed_means(arm), sign * _seed_means(baseline)

    def by_t(mean: float) -> float:
        """If all runs and tasks agree exactly there is no spread to test by, and the other tests decide."""
        return two_sided_p((effect - mean) / error, seeds.freedom) if error > 0 else float(effect == mean)

    def p_at(mean: float) -> float:
        return max(checkpoint.p_of(mean), by_t(mean), seed_permutation(one, two, mean) if permutes else 0.0)

    def ends(level: float) -> tuple[float, float]:
        half = t_quantile(1.0 - level / 2.0, seeds.freedom) * error
        found = [checkpoint.interval(level), (effect - half, effect + half)]
        if permutes and seeds.by_seed > 0:
            middle, step = float(one.mean() - two.mean()), math.sqrt(seeds.by_seed)
            low, high = (
                interval_end(lambda m: seed_permutation(one, two, m) <= level, middle, step, direction)
                for direction in (-1.0, 1.0)
            )
            found.append((low, high))
        bound = math.inf if largest is None else max(largest, abs(effect))
        return max(min(low for low, _ in found), -bound), min(max(high for _, high in found), bound)

    low, high = ends(level)
    return attrs.evolve(
        checkpoint,
        low=low,
        high=high,
        p_value=p_at(0.0),
        standard_error=max(error, checkpoint.standard_error),
        method=f"seed permutation, {by_runs}" if permutes else by_runs,
        exact_binary=False,
        seeds=seeds,
        p_at=p_at,
        ends_at=ends,
        flips=None,
    )


def permuted(arm_runs: int, baseline_runs: int, corrected_level: float) -> bool:
    """Whether a permutation of seeds can serve: both arms have some, it can be significant, and it is feasible."""
    return (
        min(arm_runs, baseline_runs) > 1
        and permutation_floor(arm_runs, baseline_runs) <= corrected_level
        and math.comb(arm_runs + baseline_runs, arm_runs) <= _MOST_SPLITS
    )


def _seed_means(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return _side(scores, np.arange(scores.shape[1])).means
