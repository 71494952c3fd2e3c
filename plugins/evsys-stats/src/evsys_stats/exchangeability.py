"""Whether a stream still looks like its beginning, at any time: a conformal test martingale.

Each value gets the rank p among all values before it (randomised where values are equal), which is uniform on (0, 1] and independent of
the past as long as the stream is exchangeable, whatever its distribution (Vovk, Gammerman & Shafer 2005, "Algorithmic Learning in a
Random World", ch. 7). A bettor with one unit bets against that. By Ville's inequality (1939) the capital ever reaches 1/alpha with a
probability of at most alpha, however often one looks. The mean of several such capitals has the same property.

The bets are step functions of p: `gain` on the values of the strangest part `part`, less on the others. At value t the bettor invests
1 / (t + 1) of the cash, in equal parts in all bets, so a change that comes late costs the logarithm of its time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import attrs

__all__ = ["Martingale", "Side"]

type Side = Literal["high", "low", "both"]


def _bet(part: float, gain: float) -> tuple[float, float, float]:
    """A bet on a part of the ranks: what a unit becomes inside and outside of it, so that its mean is 1."""
    return part, gain, (1 - gain * part) / (1 - part)


_TAILS = tuple(
    _bet(part, gain)
    for part, gains in ((0.03, (2.0, 6.0)), (0.1, (1.5, 3.0, 6.0)), (0.3, (1.3, 2.0, 3.0)))
    for gain in gains
)
"""The bets on a tail."""

_GAINS = (1.25, 1.5, 2.0, 3.0, 5.0, 9.0)
"""The gains on a value of two, whose part is its share so far."""

_MOST = 1e200
"""Capital beyond this says no more, and the next factor could be infinite."""


@attrs.define
class Martingale:
    """The capital won by betting that one series changes.

    Attributes:
        side: which change counts: to `high` values, to `low` ones, or `both`.
        counts: how often each value 0, 1, ... was seen, [n_values] ints. Two values are bet on by their share.
        seen: values bet on.
        cash: capital not invested.
        invested: capital in each bet.
    """

    side: Side
    counts: list[int]
    seen: int = 0
    cash: float = 1.0
    invested: list[float] = attrs.field(factory=list)

    @property
    def capital(self) -> float:
        """The e-value: evidence against an unchanged stream, 1 at first."""
        return self.cash + math.fsum(self.invested)

    def calibrate(self, values: Sequence[int]) -> None:
        """Count values of the time before, which nothing is bet on."""
        for value in values:
            self.counts[value] += 1

    def observe(self, value: int, draw: float) -> None:
        """Bet on the next value, then count it.

        Args:
            value: from 0 to `len(counts) - 1`.
            draw: uniform on (0, 1] and independent of the stream; decides among equal values.
        """
        counts, total = self.counts, sum(self.counts) + 1
        above = sum(counts[value + 1 :])
        rank = (above + draw * (counts[value] + 1)) / total
        factors = self._factors(rank, total - 1)
        if not self.invested:
            self.invested = [0.0] * len(factors)
        self.seen += 1
        stake = self.cash / (self.seen + 1) / len(factors)
        self.cash -= stake * len(factors)
        self.invested = [
            min(_MOST, (part + stake) * factor) for part, factor in zip(self.invested, factors, strict=True)
        ]
        counts[value] += 1

    def _factors(self, rank: float, before: int) -> list[float]:
        """The factor of each bet; each has mean 1 over a uniform rank."""
        found: list[float] = []
        if self.side != "low":
            found += [gain if rank <= part else loss for part, gain, loss in self._bets(1, before)]
        if self.side != "high":
            found += [gain if 1 - rank < part else loss for part, gain, loss in self._bets(0, before)]
        return found

    def _bets(self, value: int, before: int) -> Sequence[tuple[float, float, float]]:
        """The bets on a tail of the ranks; of two values, on that part of them which has had the value so far."""
        if len(self.counts) != 2:
            return _TAILS
        share = min(0.99, max(0.01, self.counts[value] / before if before else 0.5))
        most = 1 + 0.9 * (1 / share - 1)
        return [_bet(share, min(gain, most)) for gain in _GAINS]

    def tree(self) -> dict[str, Any]:
        """Its state as plain values."""
        return attrs.asdict(self)
