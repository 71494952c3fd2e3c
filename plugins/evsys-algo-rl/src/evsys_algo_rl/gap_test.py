"""Has the gap between two scores of the same rollouts grown since the start? A sequential test that may be looked at after every group.

An observation is the gap of one group of rollouts: the mean of the reward minus the mean of the guard's score, both scaled to 0..1, so that
it lies within -1..1. The null hypothesis is that the expected gap, given all that came before, never exceeds the expected gap of the
start by more than `margin`.

For a gap `b` of the start, two bettors play. One bets on the observations of the start lying below `b`, the other on later ones lying
above `b + margin`: capital `prod(1 + bet * (x - b - margin))`, with bets chosen before each observation. Under the null hypothesis the product of both, at the true `b`,
is a nonnegative supermartingale that begins at 1. The true `b` is unknown, so the evidence is the least product over all `b`, an e-process; by
Ville's inequality it ever reaches `1 / level` with probability `level` at most, however often it is looked at.

Sources: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", for the capital and the bets; Ramdas et al. 2023,
"Game-theoretic statistics and safe anytime-valid inference", for e-processes of composite hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GapTest"]

CELLS = 200
"""The gap of the start is looked for in so many cells. In each the bettors face the cell's own end that is worse for them, which covers every `b` inside."""

WIDTH = 2.0 / CELLS
"""Of a cell, in units of the gap."""

LARGEST_BET = 0.75
"""The share of the capital that a single observation may cost."""

MEMORY = 100
"""Observations that a bet looks back on, so that it follows a gap that begins to grow late."""

_EDGES = np.linspace(0.0, 1.0, CELLS + 1)
"""Ends of the cells, of the gap as `(gap + 1) / 2`."""


class GapTest:
    """Takes in gaps one by one, first those of the start. `state` holds all of it.

    Args:
        level: the largest probability of an alarm over the whole run, if the null hypothesis is true.
        margin: tolerated growth of the gap; rounded up to a whole cell.
    """

    def __init__(self, level: float, margin: float = 0.0) -> None:
        self._threshold = math.log(1.0 / level)
        self._shift = math.ceil(margin / WIDTH - 1e-9)
        self._below = np.zeros(CELLS)
        self._above = np.zeros(CELLS + 1)
        self._start = _Moments()
        self._later = _Moments()

    def add_start(self, gaps: Iterable[float]) -> None:
        """Take in gaps of the start."""
        lower = _EDGES[:-1]
        for x in _scaled(gaps):
            distance = lower - self._start.mean
            bet = np.clip(self._start.bet(distance), 0.0, LARGEST_BET / (1.0 - lower))
            self._below += np.log1p(bet * (lower - x))
            self._start.add(x)
        self._later = self._start.copy(most=MEMORY)

    def add(self, gaps: Iterable[float]) -> None:
        """Take in gaps from after the start."""
        for x in _scaled(gaps):
            bet = np.clip(
                self._later.bet(self._later.mean - _EDGES), 0.0, LARGEST_BET / np.maximum(_EDGES, 1e-12)
            )
            self._above += np.log1p(bet * (x - _EDGES))
            self._later.add(x, most=MEMORY)

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence against the null hypothesis now."""
        return self._least(self._shift)

    @property
    def alarm(self) -> bool:
        """Whether the evidence is enough at the level."""
        return self.log_evidence >= self._threshold

    @property
    def start(self) -> float:
        """Mean gap of the start; 0 before there is any."""
        return 2.0 * self._start.average - 1.0

    @property
    def gap(self) -> float:
        """Mean gap of the last observations, up to `MEMORY` of them in effect."""
        return 2.0 * self._later.average - 1.0

    @property
    def growth_low(self) -> float:
        """A lower bound of the largest growth of the expected gap so far. With probability `1 - level` it is right at all times at once."""
        shown, open_ = -CELLS, CELLS
        while open_ - shown > 1:
            middle = (shown + open_) // 2
            shown, open_ = (middle, open_) if self._least(middle) >= self._threshold else (shown, middle)
        return shown * WIDTH

    def _least(self, shift: int) -> float:
        """The least product over the cells where growth by more than `shift` of them is at stake."""
        ends = np.arange(1, CELLS + 1) + shift
        # A mean below 0 is impossible, so nothing is left to refute; one above 1 can't be exceeded, so nothing is won.
        above = np.where(ends < 0, np.inf, np.where(ends > CELLS, 0.0, self._above[np.clip(ends, 0, CELLS)]))
        return float(np.min(self._below + above))

    def state(self) -> dict[str, Any]:
        """Everything it has taken in, as JSON values."""
        return {
            "below": self._below.tolist(),
            "above": self._above.tolist(),
            "start": self._start.state(),
            "later": self._later.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` gave."""
        self._below, self._above = np.array(state["below"]), np.array(state["above"])
        self._start, self._later = _Moments(**state["start"]), _Moments(**state["later"])


class _Moments:
    """Mean and variance of what was seen, with one imagined observation of mean 1/2 and variance 1/20, so that early bets are small."""

    def __init__(self, count: float = 0.0, total: float = 0.0, squares: float = 0.0) -> None:
        self.count, self.total, self.squares = count, total, squares

    @property
    def mean(self) -> float:
        return (0.5 + self.total) / (1.0 + self.count)

    @property
    def average(self) -> float:
        """The mean of the observations alone; 1/2 before there are any."""
        return self.total / self.count if self.count else 0.5

    @property
    def variance(self) -> float:
        return max(1e-6, (0.3 + self.squares) / (1.0 + self.count) - self.mean**2)

    def bet(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bet that maximises the expected log capital to second order, for a mean at this distance."""
        return distance / (self.variance + np.square(distance))

    def add(self, x: float, *, most: float = math.inf) -> None:
        """Take in an observation; earlier ones fade once there are `most`."""
        keep = 1.0 if self.count < most else 1.0 - 1.0 / most
        self.count, self.total, self.squares = (
            keep * self.count + 1,
            keep * self.total + x,
            keep * self.squares + x * x,
        )

    def copy(self, *, most: float) -> _Moments:
        """The same, with the weight of at most so many observations."""
        share = min(1.0, most / self.count) if self.count else 1.0
        return _Moments(share * self.count, share * self.total, share * self.squares)

    def state(self) -> dict[str, float]:
        return {"count": self.count, "total": self.total, "squares": self.squares}


def _scaled(gaps: Iterable[float]) -> Iterable[float]:
    """Gaps within 0..1.

    Raises:
        ValueError: one is beyond -1..1, for which nothing would hold.
    """
    for gap in gaps:
        if not -1.0 <= gap <= 1.0:
            raise ValueError(f"a gap lies within -1..1, got {gap:g}")
        yield (gap + 1.0) / 2.0
