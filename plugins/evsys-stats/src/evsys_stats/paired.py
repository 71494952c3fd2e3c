"""Statistics of a paired difference over tasks. Numpy only, deterministic by seed.

`differences` is [n] float64, one entry a task (arm minus baseline, already signed so that positive is better), `clusters`
[n] int labels of tasks that belong together; without clusters each task is its own.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys_stats.binary_pairs import MID_P_BELOW, mcnemar, paired_proportions_p
from evsys_stats.signs import ENUMERATE_UP_TO, sign_products
from evsys_stats.weighted_means import weighted_means

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Flips",
    "Pair",
    "Paired",
    "cluster_sums",
    "interval_end",
    "paired_difference",
    "paired_differences",
    "satterthwaite",
    "standard_error",
    "wild_bootstrap",
]

_ROUNDING = 1e-12
"""A spread below this part of the residuals' squares is a computed zero."""

_FARTHEST = 2.0**20
"""An interval that ends nowhere within so many standard errors has no end."""

_LEVEL = 0.05
"""Of the interval that every comparison has."""

_APART = 1e-6
"""An end of an interval keeps this part of the effect away from an excluded value, since ends are searched to a
thousandth of an error.
"""

_TOO_FEW = 6
"""Fewer clusters that differ can't reach p <= 0.05 by their signs: 2 / 2**5 = 0.0625."""


@attrs.frozen(kw_only=True)
class Seeds:
    """The sources of the error of a claim about recipes: squared standard errors by training seed and by task.

    `runs` are the training runs of each trained side, the fewest first; `freedom` the degrees of freedom of the
    whole.
    """

    by_seed: float
    by_task: float
    freedom: float
    runs: tuple[int, ...]


def satterthwaite(total: float, parts: Iterable[tuple[float, float]]) -> float:
    """The degrees of freedom of a squared standard error, after Satterthwaite 1946; infinitely many where it is all known.

    Args:
        total: the squared error.
        parts: what it is estimated from: squared errors, each with its own degrees of freedom.
    """
    spread = sum(part**2 / freedom for part, freedom in parts if part > 0)
    return total**2 / spread if spread else math.inf


@attrs.frozen(kw_only=True, eq=False)
class Flips:
    """The |t| of a comparison under each sign pattern of its units if there is no difference, [B].

    `units` says whose signs were flipped: comparisons with equal `units` share their patterns, so that their statistics are drawn
    jointly; None if that isn't known. `observed` is the |t| seen, and `exact` that the pattern seen is among the others.
    """

    statistics: NDArray[np.float64]
    observed: float
    exact: bool
    units: Hashable | None = None

    def p_values(self) -> NDArray[np.float64]:
        """The p-value under each pattern, [B], or [B + 1] with the one seen as the last."""
        drawn = self.statistics if self.exact else np.append(self.statistics, self.observed)
        below = np.searchsorted(np.sort(drawn), drawn * (1 - 1e-9), side="left")
        return (len(drawn) - below) / len(drawn)


@attrs.frozen(kw_only=True)
class Paired:
    """A paired comparison: effect, 95 % interval, two-sided p, and the standard error behind them.

    `differing` clusters (tasks, where there are none) have a difference at all. `scale` is the largest difference that a
    task can have, as far as it is known, else 1 or what was seen. `exact_binary`: the p-value is McNemar's. Of a claim about recipes
    `seeds` has the parts of the error. `p_at` gives the two-sided p-value of any other true effect than 0, `ends_at` the interval
    of another level, 1 less its confidence. `flips` are those of a bootstrap.
    """

    effect: float
    low: float
    high: float
    p_value: float
    standard_error: float
    n: int
    clusters: int
    method: str
    differing: int
    scale: float = 1.0
    exact_binary: bool = False
    seeds: Seeds | None = None
    p_at: Callable[[float], float] | None = attrs.field(default=None, eq=False, repr=False)
    ends_at: Callable[[float], tuple[float, float]] | None = attrs.field(default=None, eq=False, repr=False)
    flips: Flips | None = attrs.field(default=None, eq=False, repr=False)

    def interval(self, level: float, tested: Iterable[float] = (0.0,)) -> tuple[float, float]:
        """The interval that leaves out the truth with probability `level`; it holds the 95 % one if `level` is
        below 0.05.

        Args:
            level: 1 less its confidence.
            tested: effects tested: the interval holds each of them exactly if its p-value is above `level`.
        """
        if self.ends_at is None or level == _LEVEL:
            low, high = self.low, self.high
        else:
            low, high = self.ends_at(level)
            if level < _LEVEL:
                low, high = min(low, self.low), max(high, self.high)
        for effect in tested:
            if self.p_of(effect) > level:
                low, high = min(low, effect), max(high, effect)
            elif effect < self.effect:
                low = max(low, effect + _APART * (self.effect - effect))
            elif effect > self.effect:
                high = min(high, effect + _APART * (self.effect - effect))
        return low, high

    def p_of(self, effect: float) -> float:
        """Two-sided p of a true effect; it falls on both sides of the effect seen."""
        if effect == 0.0:
            return self.p_value
        if self.p_at is None:
            raise ValueError("this comparison has no test of an effect other than 0")
        p = self.p_at(effect)
        # Another test serves at 0 than elsewhere: what lies beyond 0 is no likelier than 0, what lies before it no less likely.
        if effect * self.effect < 0:
            return min(p, self.p_value)
        return max(p, self.p_value) if abs(effect) < abs(self.effect) else p


def cluster_sums(
    values: NDArray[np.float64], clusters: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and size of each cluster, [G] each."""
    _, index = np.unique(clusters, return_inverse=True)
    groups = int(index.max()) + 1
    return np.bincount(index, weights=values, minlength=groups), np.bincount(index, minlength=groups).astype(
        np.float64
    )


def standard_error(sums: NDArray[np.float64], sizes: NDArray[np.float64], mean: float) -> float:
    """Clustered standard error of a mean, with the G/(G-1) correction, from the sum and size of each cluster, [G] each."""
    groups = len(sizes)
    correction = groups / (groups - 1) if groups > 1 else 1.0
    return float(np.sqrt(correction * np.square(sums - mean * sizes).sum()) / sizes.sum())


class _Sample:
    """A comparison to be bootstrapped: bootstrap samples whose mean is `shift` by construction get the residuals of its
    clusters with random signs. All that a sample's t needs is linear in the shift, up to a square, so that one product of its
    `columns` with the signs serves every shift.
    """

    def __init__(
        self,
        differences: NDArray[np.float64],
        clusters: NDArray[np.int64] | None = None,
        largest: float | None = None,
        tasks: tuple[str, ...] | None = None,
    ) -> None:
        self.units = (
            None if tasks is None else (tasks, None if clusters is None else tuple(clusters.tolist()))
        )
        self.values = np.asarray(differences, dtype=np.float64)
        self.clustered, self.largest = clusters is not None, largest
        labels = np.arange(len(self.values)) if clusters is None else np.asarray(clusters)
        self.sums, self.sizes = cluster_sums(self.values, labels)
        self.groups, self.effect = len(self.sums), float(self.values.mean())
        self.total, self.squared_sizes = float(self.sizes.sum()), float(np.square(self.sizes).sum())
        seen = float(np.abs(self.values).max())
        self.scale = max(1.0, seen) if largest is None else max(largest, seen)
        self.error = float(standard_error(self.sums, self.sizes, self.effect))
        self.columns = np.stack([self.sums, self.sizes, self.sums * self.sizes, self.sizes**2], axis=1)

    def t(self, products: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
        """|t*| of each bootstrap sample, [B], from `(signs @ columns).T`, [4, B]. A zero error with a mean other than `shift` is infinite."""
        of_sums, of_sizes, of_products, of_squares = products
        residuals = self.sums - shift * self.sizes
        squares = float(np.square(residuals).sum())
        mean = (of_sums - shift * of_sizes) / self.total
        spread = squares + mean * (mean * self.squared_sizes - 2.0 * (of_products - shift * of_squares))
        correction = self.groups / (self.groups - 1) if self.groups > 1 else 1.0
        zero = spread <= _ROUNDING * squares
        if not zero.any():
            found: NDArray[np.float64] = np.abs(mean) / (np.sqrt(correction * spread) / self.total)
            return found
        error = np.sqrt(correction * np.where(zero, 1.0, spread)) / self.total
        far = np.abs(mean) > 1e-9 * math.sqrt(squares) / self.total
        return np.where(zero, np.where(far, np.inf, 0.0), np.abs(mean) / error)


def interval_end(excluded: Callable[[float], bool], effect: float, error: float, direction: float) -> float:
    """The end of an interval in one direction: where a mean begins to be excluded, from inside to a thousandth of `error`."""
    inside, step = effect, error
    while not excluded(effect + direction * step):
        inside, step = effect + direction * step, 2.0 * step
        if step > _FARTHEST * error:
            return direction * math.inf
    outside = effect + direction * step
    while abs(outside - inside) > 1e-3 * error:
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if excluded(middle) else (middle, outside)
    return outside


def wild_bootstrap(
    differences: NDArray[np.float64],
    clusters: NDArray[np.int64] | None = None,
    *,
    draws: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
    largest: float | None = None,
) -> Paired:
    """Studentised wild (sign-flip) cluster bootstrap of a mean difference.

    The p-value imposes the null: cluster sums keep their size and get random signs. The interval is the test turned
    around, all means that it doesn't reject at `1 - level`, so the two agree. It is wider only where fewer than six
    clusters differ, or all differ alike; and it stays within `largest`, the largest difference that a task can have.
    Sources: Cameron, Gelbach & Miller 2008, "Bootstrap-based improvements for inference with clustered errors";
    MacKinnon 2015, "Wild cluster bootstrap confidence intervals", for the inversion; Liu 1988 for the wild bootstrap.
    """
    sample = _Sample(differences, clusters, largest)
    return _bootstrap_each([sample], draws=draws, seed=seed, level=level)[0]


def _bootstrap_each(
    samples: Sequence[_Sample], *, draws: int, seed: int, level: float = 0.95
) -> list[Paired]:
    """Each comparison by its own bootstrap; those with as many clusters share the signs and weights, which are drawn once."""
    alike: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        alike.setdefault(sample.groups, []).append(place)
    found: dict[int, Paired] = {}
    for places in alike.values():
        group = [samples[place] for place in places]
        columns = np.concatenate([sample.columns for sample in group], axis=1)
        products = sign_products(columns, draws=draws, seed=seed)
        weights = _Weights(group, draws, seed)
        for i, place in enumerate(places):
            own = np.ascontiguousarray(products[:, 4 * i : 4 * i + 4].T)  # read dozens of times
            wild = _Wild(samples[place], own, partial(weights.p_value, i))
            found[place] = wild.comparison(1.0 - level)
    return [found[place] for place in range(len(samples))]


class _Weights:
    """The weighted means of comparisons with as many clusters, drawn when the first is asked for."""

    def __init__(self, samples: Sequence[_Sample], draws: int, seed: int) -> None:
        self._samples = samples
        self._means = cache(
            lambda: weighted_means(
                [sample.sums for sample in samples],
                [sample.sizes for sample in samples],
                [sample.scale for sample in samples],
                draws=draws,
                seed=seed,
            )
        )

    def p_value(self, place: int, mean: float) -> float:
        """Two-sided p of a mean of one of them."""
        return self._means()[place].p_value(self._samples[place].effect, mean)


class _Wild:
    """The wild bootstrap of one comparison, from its sign patterns' `products`.

    Args:
        sample: the comparison.
        products: of the sign patterns with its columns, [4, B].
        weighted: two-sided p of a mean by weighted means.
    """

    def __init__(
        self, sample: _Sample, products: NDArray[np.float64], weighted: Callable[[float], float]
    ) -> None:
        self._sample, self._products, self._weighted = sample, products, weighted
        self._tiny = 1e-12 * (1.0 + abs(sample.effect))
        self._exact = sample.groups <= ENUMERATE_UP_TO
        self._differing = int(np.count_nonzero(np.abs(sample.sums) > 1e-12 * sample.scale))
        self._flips = self._flips_at(0.0)

    def _flips_at(self, mean: float) -> Flips:
        sample, distance = self._sample, abs(self._sample.effect - mean)
        if sample.error > self._tiny:
            observed = distance / sample.error
        else:
            observed = math.inf if distance > self._tiny else 0.0
        null = sample.t(self._products, mean)
        return Flips(statistics=null, observed=observed, exact=self._exact, units=sample.units)

    def _flipped(self, mean: float) -> float:
        """How probable a difference as far from `mean` as the one seen is, were it the true one."""
        flips = self._flips if mean == 0.0 else self._flips_at(mean)
        # Ties count against the claim; the +1 keeps a random p-value valid, and an enumerated one contains the data itself.
        hits, patterns = (
            int(np.count_nonzero(flips.statistics >= flips.observed * (1 - 1e-9))),
            len(flips.statistics),
        )
        return min(1.0, hits / patterns if self._exact else (hits + 1) / (patterns + 1))

    def _unseen(self, mean: float) -> float:
        """How probable it is that all clusters say nearly the same although the mean is another one.

        Tasks that nearly all say the same don't prove that all would: with 95 % confidence at most a share of 1 - 0.05^(1/G) of
        unseen clusters differs (the exact "rule of three", Hanley & Lippman-Hand 1983), each by up to the score's range.
        """
        sample = self._sample
        return (1.0 - min(1.0, abs(sample.effect - mean) / sample.scale)) ** sample.groups

    @property
    def _is_sparse(self) -> bool:
        return self._sample.error <= self._tiny or self._differing < _TOO_FEW

    def _p_at(self, mean: float) -> float:
        return max(self._flipped(mean), self._weighted(mean), self._unseen(mean) if self._is_sparse else 0.0)

    def _ends(self, level: float) -> tuple[float, float]:
        """All means that flipping signs doesn't reject at `level`, widened by what wasn't seen where hardly a cluster differs."""
        sample, effect = self._sample, self._sample.effect
        low = high = effect
        if sample.error > self._tiny and self._exact and 2.0 / self._products.shape[1] > level:
            # The data and its mirror image are too many of so few patterns to reject anything.
            low, high = -math.inf, math.inf
        elif sample.error > self._tiny:
            low, high = (
                interval_end(lambda mean: self._flipped(mean) <= level, effect, sample.error, direction)
                for direction in (-1.0, 1.0)
            )
        if self._is_sparse:
            open_part = (1.0 - level ** (1.0 / sample.groups)) * sample.scale
            low, high = min(low, effect - open_part), max(high, effect + open_part)
        bound = math.inf if sample.largest is None else max(sample.largest, abs(effect))
        return max(low, -bound), min(high, bound)

    def comparison(self, level: float) -> Paired:
        """The result of the bootstrap, with the interval of `level`."""
        sample, (low, high) = self._sample, self._ends(level)
        flipped = self._flipped(0.0)
        return Paired(
            effect=sample.effect,
            low=low,
            high=high,
            p_value=max(flipped, self._unseen(0.0)) if sample.error <= self._tiny else flipped,
            standard_error=sample.error,
            n=len(sample.values),
            clusters=sample.groups,
            method="wild cluster bootstrap" if sample.clustered else "wild bootstrap",
            differing=self._differing,
            scale=sample.scale,
            p_at=self._p_at,
            ends_at=self._ends,
            flips=self._flips,
        )


@attrs.frozen(kw_only=True, eq=False)
class Pair:
    """Two arms on the same tasks, [n] each; `clusters` [n] labels of tasks that belong together. `largest` is the largest
    difference that a task can have, None where that isn't known. `tasks` are their names, [n]; without them it isn't known which pairs share
    their tasks.
    """

    arm: NDArray[np.float64]
    baseline: NDArray[np.float64]
    clusters: NDArray[np.int64] | None = None
    largest: float | None = None
    tasks: tuple[str, ...] | None = None


def paired_differences(
    pairs: Sequence[Pair], *, sign: float = 1.0, binary: bool = False, draws: int = 10_000, seed: int = 0
) -> list[Paired]:
    """Compare pairs of arms task by task, all of them by the same test; `sign` is -1 where less is better.

    McNemar's where each task of each pair is one 0/1 outcome (`binary`) and none has clusters, else the wild bootstrap.
    """
    if binary and all(pair.clusters is None for pair in pairs):
        return [_binary(pair, sign) for pair in pairs]
    samples = [
        _Sample(
            sign * (np.asarray(pair.arm, dtype=np.float64) - np.asarray(pair.baseline, dtype=np.float64)),
            pair.clusters,
            pair.largest,
            pair.tasks,
        )
        for pair in pairs
    ]
    return _bootstrap_each(samples, draws=draws, seed=seed)


def paired_difference(
    arm: NDArray[np.float64],
    baseline: NDArray[np.float64],
    clusters: NDArray[np.int64] | None = None,
    *,
    sign: float = 1.0,
    binary: bool = False,
    draws: int = 10_000,
    seed: int = 0,
    largest: float | None = None,
) -> Paired:
    """Compare two arms; see `paired_differences`."""
    pair = Pair(arm=arm, baseline=baseline, clusters=clusters, largest=largest)
    return paired_differences([pair], sign=sign, binary=binary, draws=draws, seed=seed)[0]


def _binary(pair: Pair, sign: float) -> Paired:
    differences = sign * (
        np.asarray(pair.arm, dtype=np.float64) - np.asarray(pair.baseline, dtype=np.float64)
    )
    n = len(differences)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    effect = (better - worse) / n
    found = Paired(
        effect=effect,
        low=effect,
        high=effect,
        p_value=mcnemar(better, worse),
        standard_error=standard_error(differences, np.ones(n), effect),
        n=n,
        clusters=n,
        method="McNemar mid-p" if better + worse < MID_P_BELOW else "McNemar exact",
        differing=better + worse,
        exact_binary=True,
        p_at=partial(paired_proportions_p, better, worse, n),
    )

    def ends(level: float) -> tuple[float, float]:
        low, high = (
            interval_end(lambda mean: found.p_of(mean) <= level, effect, 1.0 / n, direction)
            for direction in (-1.0, 1.0)
        )
        return max(low, -1.0), min(high, 1.0)

    low, high = ends(_LEVEL)
    return attrs.evolve(found, low=low, high=high, ends_at=ends)
