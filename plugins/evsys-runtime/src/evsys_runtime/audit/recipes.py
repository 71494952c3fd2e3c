"""Claims about recipes, whose unit is the training run: two-way errors, the permutation of runs, and the runs themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from evsys_runtime.audit.deviations import KnownDeviation
from evsys_runtime.audit.distributions import t_quantile, t_two_sided
from evsys_runtime.audit.paired_tests import (
    NINETY_FIVE,
    Array,
    Ends,
    Estimate,
    Levels,
    PairedTest,
    largest_of,
    search_end,
)

__all__ = ["MIN_RUNS", "RecipeTest", "matrix"]

MIN_RUNS = 4
"""With fewer runs nothing is claimed about the recipe."""

_MOST_SPLITS = 20_000


class RecipeTest(PairedTest):
    """The least certain of three tests about the recipes behind two groups of runs.

    Args:
        checkpoint: the comparison of these very runs.
        arm: scores of the arm's runs by task, [S, n]; NaN where a run has none.
        baseline: those of the baseline, [T, n]; a single row is a model that wasn't trained.
        labels: the cluster of each task, [n].
        sign: -1 where less is better.
        level: of one comparison after correction; where a permutation can't reach it, there is none.
        largest: the largest difference that there can be; None where it isn't known.
        deviation: of runs, known from others, for recipes with few runs; a single run of either is then enough.
        trained: whether the baseline's rows are training runs.
    """

    def __init__(
        self,
        checkpoint: PairedTest,
        arm: Array,
        baseline: Array,
        labels: Sequence[str],
        *,
        sign: float,
        level: float,
        largest: float | None,
        deviation: KnownDeviation | None = None,
        trained: bool = True,
    ) -> None:
        self.checkpoint, self.effect = checkpoint, checkpoint.effect
        self.n, self.groups = checkpoint.n, checkpoint.groups
        self.largest = largest
        self.error, self.freedom, self.by_run = _two_way(arm, baseline, labels)
        self.permutes = deviation is None and _can_permute(len(arm), len(baseline), level)
        if deviation is not None:
            by_task, units = _task_variance(arm, baseline, labels)
            sides = [arm, baseline] if trained else [arm]
            shrunken = deviation.with_own(sides)
            self.error, self.freedom, self.by_run = shrunken.errors(by_task, units, [*map(len, sides)])
        self.step = max(self.error, checkpoint.step)
        self.runs = sign * _run_means(arm), sign * _run_means(baseline)

    def _by_t(self, mean: float) -> Estimate:
        if self.error == 0:
            return Estimate(float(self.effect == mean))
        return Estimate(t_two_sided((self.effect - mean) / self.error, self.freedom))

    def _permuted(self, mean: float) -> Estimate:
        """The share of ways to split the runs among both arms that differ by as much (Fisher 1935)."""
        arm, baseline = self.runs
        every = np.concatenate([arm - mean, baseline])
        chosen = np.array(list(combinations(range(len(every)), len(arm))))
        sums = every[chosen].sum(axis=1)
        means = sums / len(arm) - (every.sum() - sums) / len(baseline)
        seen = abs(float((arm - mean).mean() - baseline.mean()))
        return Estimate(float((np.abs(means) >= seen - 1e-12 * (1.0 + np.abs(every).max())).mean()))

    def at_zero(self) -> Estimate:
        """The largest p-value of the tests."""
        permuted = [self._permuted(0.0)] if self.permutes else []
        return largest_of(self.checkpoint.at_zero(), self._by_t(0.0), *permuted)

    def elsewhere(self, mean: float) -> Estimate:
        """The largest p-value of the tests at another difference."""
        permuted = [self._permuted(mean)] if self.permutes else []
        return largest_of(self.checkpoint.p(mean), self._by_t(mean), *permuted)

    def end(self, direction: float, levels: Levels = NINETY_FIVE) -> Ends:
        """The farthest end of theirs."""
        near, far = (
            self.effect + direction * t_quantile(level, self.freedom) * self.error
            for level in (levels.highest, levels.lowest)
        )
        found = self.checkpoint.end(direction, levels).beyond(Ends(near, far), direction)
        if self.permutes and self.by_run > 0:
            middle = float(self.runs[0].mean() - self.runs[1].mean())
            permuted = search_end(self._permuted, middle, math.sqrt(self.by_run), direction, levels)
            found = found.beyond(permuted, direction)
        return found if self.largest is None else found.clipped(max(self.largest, abs(self.effect)))


def matrix(by_run: Sequence[Mapping[str, float]], tasks: Sequence[str]) -> Array:
    """Scores by run and task, NaN where there is none; runs without any are left out."""
    rows = np.array([[run.get(task, math.nan) for task in tasks] for run in by_run])
    return rows[~np.isnan(rows).all(axis=1)]


def _can_permute(arm: int, baseline: int, level: float) -> bool:
    splits = math.comb(arm + baseline, arm)
    smallest = (2 if arm == baseline else 1) / splits
    return min(arm, baseline) > 1 and smallest <= level and splits <= _MOST_SPLITS


def _deviations(scores: Array) -> tuple[Array, Array]:
    """How far each run lies from the others on the tasks that it scored, [S], and what is left of each score, [S, n]."""
    left = scores - np.nanmean(scores, axis=0)
    by_run = np.nanmean(left, axis=1)
    by_run = by_run - by_run.mean()
    return by_run, np.nan_to_num(left - by_run[:, None])


def _run_means(scores: Array) -> Array:
    """The mean of each run as if it had scored every task, [S]."""
    overall = float(np.nanmean(scores, axis=0).mean())
    return np.full(1, overall) if len(scores) == 1 else overall + _deviations(scores)[0]


def _two_way(arm: Array, baseline: Array, labels: Sequence[str]) -> tuple[float, float, float]:
    """Standard error by run and task, its degrees of freedom, and the squared error by run alone.

    Both errors add up, less what both count (Cameron, Gelbach & Miller 2011); degrees of freedom after Satterthwaite 1946.
    """
    n, (_, places) = arm.shape[1], np.unique(labels, return_inverse=True)
    by_task, groups = _task_variance(arm, baseline, labels)
    parts, both = [(by_task, max(1, groups - 1))], 0.0
    for scores in (arm, baseline):
        runs = len(scores)
        if runs > 1:
            by_run, left = _deviations(scores)
            parts.append((float((by_run**2).sum()) / (runs - 1) / runs, runs - 1))
            sums = np.stack([np.bincount(places, weights=row, minlength=groups) for row in left])
            correction = runs / (runs - 1) * groups / max(1, groups - 1)
            both += correction * float((sums**2).sum()) / (runs * n) ** 2
    by_runs = math.fsum(part for part, _ in parts[1:])
    total = max(by_runs, by_task, by_runs + by_task - both)
    spread = math.fsum(part**2 / freedom for part, freedom in parts)
    return math.sqrt(total), total**2 / spread if spread else math.inf, by_runs


def _task_variance(arm: Array, baseline: Array, labels: Sequence[str]) -> tuple[float, int]:
    """The squared error of the difference by (clusters of) tasks, and how many there are."""
    differences = np.nanmean(arm, axis=0) - np.nanmean(baseline, axis=0)
    n, (_, places) = len(differences), np.unique(labels, return_inverse=True)
    groups = int(places.max()) + 1
    residuals = np.bincount(places, weights=differences - differences.mean(), minlength=groups)
    return groups / max(1, groups - 1) * float((residuals**2).sum()) / n**2, groups
