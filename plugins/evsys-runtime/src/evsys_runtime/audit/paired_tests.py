"""Tests of a paired difference and their intervals, from the sources that `docs/reference/conclusion.md` names.

Random tests draw numbers of their own, so a p-value comes with how far one on record, drawn likewise, may be from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_runtime.audit.distributions import normal_two_sided

__all__ = [
    "NINETY_FIVE",
    "Array",
    "BinaryPairs",
    "Ends",
    "Estimate",
    "Levels",
    "PairedTest",
    "SignFlips",
    "largest_of",
    "search_end",
]

DRAWS = 20_000
_ENUMERATED = 12
_MID_P_BELOW = 25
_FEW_DIFFER = 6
_UNSEEN_WEIGHT = 0.5
_FARTHEST = 2.0**20
_SEED = 20_250_101
_DEVIATIONS = 5.0
"""Two honest sets of draws differ by more than so many standard deviations once in two million comparisons."""

type Array = NDArray[np.float64]


@attrs.frozen
class Estimate:
    """A p-value, and how far one drawn by the record may lie from it; 0 where nothing is drawn."""

    value: float
    error: float = 0.0

    def surely_at_most(self, level: float) -> bool:
        """Whether it is at most a level, regardless of the draws."""
        return self.value + self.error <= level

    def maybe_at_most(self, level: float) -> bool:
        """Whether it may be no more than a level."""
        return self.value - self.error <= level


@attrs.frozen
class Levels:
    """1 less the confidence of an interval, or the range that it lies in where it is drawn itself."""

    lowest: float
    highest: float


NINETY_FIVE = Levels(0.05, 0.05)
"""The level of an interval that covers 95 %."""


def largest_of(*estimates: Estimate) -> Estimate:
    """The largest; its error is at most the largest of theirs."""
    return Estimate(max(e.value for e in estimates), max(e.error for e in estimates))


@attrs.frozen
class Ends:
    """An end of an interval: between the `near` place, where a difference may begin to be rejected, and the `far` one, where it surely is."""

    near: float
    far: float

    def beyond(self, other: Ends, direction: float) -> Ends:
        """The one of two that lies farther in a direction."""
        pick = max if direction > 0 else min
        return Ends(pick(self.near, other.near), pick(self.far, other.far))

    def before(self, bound: float, direction: float) -> Ends:
        """Not farther than `bound` in a direction."""
        pick = min if direction > 0 else max
        return Ends(pick(self.near, bound), pick(self.far, bound))

    def clipped(self, bound: float) -> Ends:
        """Within plus or minus `bound`."""
        return Ends(min(max(self.near, -bound), bound), min(max(self.far, -bound), bound))


def search_end(
    p: Callable[[float], Estimate], start: float, step: float, direction: float, levels: Levels
) -> Ends:
    """The end of the differences that a test doesn't reject, from `start` in a direction, to a ten-thousandth of `step`."""
    near = _search(lambda mean: p(mean).maybe_at_most(levels.highest), start, step, direction)
    far = _search(lambda mean: p(mean).surely_at_most(levels.lowest), start, step, direction)
    return Ends(near, far)


def _search(rejected: Callable[[float], bool], start: float, step: float, direction: float) -> float:
    inside, width = start, step
    while not rejected(start + direction * width):
        inside, width = start + direction * width, 2.0 * width
        if width > _FARTHEST * step:
            return direction * math.inf
    outside = start + direction * width
    while abs(outside - inside) > 1e-4 * step:
        middle = (inside + outside) / 2.0
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside


class PairedTest:
    """A test of a mean paired difference; positive is better.

    Attributes:
        effect: the difference seen.
        n: the tasks, and `groups` those independent.
        step: the scale on which an interval is searched; `slack` is how far apart two searches may end.
    """

    effect: float
    n: int
    groups: int
    step: float

    @property
    def slack(self) -> float:
        """How far two searches for an end may differ."""
        return 2e-3 * self.step

    def at_zero(self) -> Estimate:
        """The p-value of no difference."""
        raise NotImplementedError

    def elsewhere(self, mean: float) -> Estimate:
        """The p-value of a difference of `mean`, by the test that serves for others than 0."""
        raise NotImplementedError

    def end(self, direction: float, levels: Levels = NINETY_FIVE) -> Ends:
        """An end of an interval, by default that of 95 %."""
        raise NotImplementedError

    def p(self, mean: float) -> Estimate:
        """The two-sided p-value of a difference; it never rises with the distance from the effect, although 0 has a test of its own."""
        if mean == 0.0:
            return self.at_zero()
        found, zero = self.elsewhere(mean), self.at_zero()
        if mean * self.effect < 0:
            return Estimate(min(found.value, zero.value), max(found.error, zero.error))
        return largest_of(found, zero) if abs(mean) < abs(self.effect) else found


class BinaryPairs(PairedTest):
    """One 0/1 outcome a task: McNemar's exact test at 0 (mid-p below 25 discordant tasks), Tango's score test elsewhere."""

    def __init__(self, differences: Array) -> None:
        self.n = self.groups = len(differences)
        self.better, self.worse = int((differences > 0).sum()), int((differences < 0).sum())
        self.effect, self.step = (self.better - self.worse) / self.n, 1.0 / self.n

    def at_zero(self) -> Estimate:
        """The binomial tail of the discordant tasks, doubled."""
        discordant = self.better + self.worse
        if discordant == 0:
            return Estimate(1.0)
        fewer, half = min(self.better, self.worse), 0.5**discordant
        weights = [math.comb(discordant, i) * half for i in range(fewer + 1)]
        mid = weights[-1] if discordant < _MID_P_BELOW else 0.0
        return Estimate(min(1.0, 2.0 * math.fsum(weights) - mid))

    def elsewhere(self, mean: float) -> Estimate:
        """The score test: its variance is the one of the likeliest probabilities that differ by `mean` (Tango 1998)."""
        distance = self.better - self.worse - self.n * mean
        if abs(mean) >= 1.0 or abs(distance) <= 1e-9 * self.n:
            return Estimate(float(abs(distance) <= 1e-9 * self.n))
        variance = self.n * (2.0 * self._likeliest_worse(mean) + mean * (1.0 - mean))
        return Estimate(normal_two_sided(distance / math.sqrt(variance)) if variance > 0 else 0.0)

    def _likeliest_worse(self, mean: float) -> float:
        """The probability of a worse outcome that the outcomes are likeliest with, by bisection of the score."""
        equal = self.n - self.better - self.worse
        low, high = max(0.0, -mean), (1.0 - mean) / 2.0

        def rises(worse: float) -> bool:
            up = (self.better / (worse + mean) if self.better else 0.0) + (
                self.worse / worse if self.worse else 0.0
            )
            return up > (2.0 * equal / (1.0 - mean - 2.0 * worse) if equal else 0.0)

        for _ in range(200):
            middle = (low + high) / 2.0
            low, high = (middle, high) if rises(middle) else (low, middle)
        return (low + high) / 2.0

    def end(self, direction: float, levels: Levels = NINETY_FIVE) -> Ends:
        """The test turned around."""
        return search_end(self.p, self.effect, self.step, direction, levels).clipped(1.0)


class SignFlips(PairedTest):
    """The studentised wild bootstrap that flips the signs of tasks, or of whole clusters (Cameron, Gelbach & Miller 2008).

    Args:
        differences: of each task.
        clusters: of each task; tasks without one are their own.
        largest: the largest difference that a task can have; None where it isn't known.
        draws: how many sign patterns the record drew.
    """

    def __init__(
        self,
        differences: Mapping[str, float],
        clusters: Mapping[str, str],
        *,
        largest: float | None = None,
        draws: int = 10_000,
    ) -> None:
        groups: dict[tuple[str, str], list[float]] = {}
        self.units = tuple(
            (task, ("cluster", clusters[task]) if task in clusters else ("task", task))
            for task in differences
        )
        for (_, place), difference in zip(self.units, differences.values(), strict=True):
            groups.setdefault(place, []).append(difference)
        self.sums = np.array([math.fsum(values) for values in groups.values()])
        self.sizes = np.array([float(len(values)) for values in groups.values()])
        self.n, self.groups, self.draws = len(differences), len(groups), draws
        self.effect = math.fsum(differences.values()) / self.n
        seen = max(map(abs, differences.values()))
        self.largest = largest
        self.scale = max(1.0 if largest is None else largest, seen)
        self.step = self._error_of(self.sums, self.effect)
        self.differing = int((np.abs(self.sums) > 1e-12 * self.scale).sum())
        self._tiny = 1e-12 * (1.0 + abs(self.effect))

    def _error_of(self, sums: Array, mean: float) -> float:
        """The clustered standard error of a mean."""
        squares = float(((sums - mean * self.sizes) ** 2).sum())
        return math.sqrt(self.groups / max(1, self.groups - 1) * squares) / self.n

    @property
    def exact(self) -> bool:
        """Whether every pattern of signs is looked at."""
        return self.groups <= _ENUMERATED

    @cached_property
    def _products(self) -> Array:
        """Each pattern of signs times what a flipped mean and its error are linear in, [B, 4]."""
        columns = np.stack([self.sums, self.sizes, self.sums * self.sizes, self.sizes**2], axis=1)
        if self.exact:
            grid = np.indices((2,) * self.groups).reshape(self.groups, -1).T
            return np.asarray((1.0 - 2.0 * grid) @ columns)
        drawing = np.random.default_rng(_SEED)
        pieces = [
            (1.0 - 2.0 * drawing.integers(0, 2, (1_000, self.groups))) @ columns
            for _ in range(DRAWS // 1_000)
        ]
        return np.concatenate(pieces)

    def _t(self, mean: float) -> Array:
        """How far each pattern's mean lies from `mean`, in its own standard errors, [B]."""
        residuals = self.sums - mean * self.sizes
        squares = float((residuals**2).sum())
        sums, sizes, products, square_sizes = self._products.T
        centres = (sums - mean * sizes) / self.n
        spread = squares - 2.0 * centres * (products - mean * square_sizes)
        spread = spread + centres**2 * float((self.sizes**2).sum())
        none = spread <= 1e-12 * squares
        errors = np.sqrt(self.groups / max(1, self.groups - 1) * np.where(none, 1.0, spread)) / self.n
        far = np.abs(centres) > 1e-9 * math.sqrt(squares) / self.n
        return np.where(none, np.where(far, np.inf, 0.0), np.abs(centres) / errors)

    def _distance(self, mean: float) -> float:
        """How far the data lies from `mean`, in its own standard errors."""
        distance = abs(self.effect - mean)
        if self.step > self._tiny:
            return distance / self.step
        return math.inf if distance > self._tiny else 0.0

    def _flipped(self, mean: float) -> Estimate:
        """The share of patterns that lie as far from `mean` as the data does."""
        t = self._t(mean)
        hits = int((t >= self._distance(mean) * (1.0 - 1e-9)).sum())
        return Estimate(hits / len(t)) if self.exact else self._draw_p_value((hits + 1) / (len(t) + 1))

    def null_p_values(self) -> Array:
        """The p-value of no difference that each pattern would have had, and where patterns are drawn that of the data, [B] or [B + 1]."""
        t = self._t(0.0)
        t = t if self.exact else np.append(t, self._distance(0.0))
        ordered = np.sort(t)
        return (len(t) - np.searchsorted(ordered, t * (1.0 - 1e-9), side="left")) / len(t)

    def _draw_p_value(self, p: float, *, tails: float = 1.0) -> Estimate:
        """A drawn p-value, `tails` times the share of draws, with the error of two sets of draws."""
        rare = max(p, 3.0 / self.draws)
        variance = rare * (tails - rare) * (1.0 / self.draws + 1.0 / DRAWS)
        return Estimate(p, _DEVIATIONS * math.sqrt(max(0.0, variance)) + tails / self.draws)

    @property
    def _all_alike(self) -> bool:
        return self.step <= self._tiny

    def _unseen(self, mean: float) -> float:
        """The probability of seeing none of the clusters that differ, if `mean` is true and they differ by the whole scale."""
        return (1.0 - min(1.0, abs(self.effect - mean) / self.scale)) ** self.groups

    def at_zero(self) -> Estimate:
        """By flipped signs; where all clusters say the same, also by what wasn't seen."""
        found = self._flipped(0.0)
        return largest_of(found, Estimate(self._unseen(0.0))) if self._all_alike else found

    @cached_property
    def _weighted(self) -> tuple[Array, Array]:
        """Weighted means with an unseen cluster of the lowest, and of the highest value (Rubin 1981, Gaffke 2005), sorted."""
        drawing = np.random.default_rng(_SEED + 1)
        typical, low, high = float(self.sizes.mean()), [], []
        for _ in range(DRAWS // 1_000):
            weights = drawing.exponential(size=(1_000, self.groups))
            unseen = drawing.gamma(_UNSEEN_WEIGHT, size=1_000) * typical
            total, size = weights @ self.sums, weights @ self.sizes + unseen
            low.append((total - unseen * self.scale) / size)
            high.append((total + unseen * self.scale) / size)
        return np.sort(np.concatenate(low)), np.sort(np.concatenate(high))

    def _by_weights(self, mean: float) -> Estimate:
        low, high = self._weighted
        tail = float((low <= mean).mean()) if mean < self.effect else float((high >= mean).mean())
        return self._draw_p_value(min(1.0, 2.0 * tail), tails=2.0)

    def elsewhere(self, mean: float) -> Estimate:
        """The least certain of flipped signs, weighted means and, where hardly a cluster differs, of what wasn't seen."""
        found = largest_of(self._flipped(mean), self._by_weights(mean))
        few = self._all_alike or self.differing < _FEW_DIFFER
        return largest_of(found, Estimate(self._unseen(mean))) if few else found

    def end(self, direction: float, levels: Levels = NINETY_FIVE) -> Ends:
        """The differences that flipped signs don't reject; wider where hardly a cluster differs; within what can be."""
        found = Ends(self.effect, self.effect)
        if not self._all_alike:
            found = search_end(self._flipped, self.effect, self.step, direction, levels)
            if self.exact:  # the data and its mirror image may be too many of the patterns to reject anything
                least = 2.0 / 2**self.groups
                near = direction * math.inf if least > levels.highest else found.near
                found = Ends(near, direction * math.inf if least > levels.lowest else found.far)
        if self._all_alike or self.differing < _FEW_DIFFER:
            near, far = (
                self.effect + direction * (1.0 - level ** (1.0 / self.groups)) * self.scale
                for level in (levels.highest, levels.lowest)
            )
            found = found.beyond(Ends(near, far), direction)
        return found if self.largest is None else found.clipped(max(self.largest, abs(self.effect)))
