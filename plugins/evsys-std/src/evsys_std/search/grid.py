"""`grid`: every combination."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import SearchAxis
from evsys_std.search.space import Arm, Entry, key_of, spread, tried_arms

__all__ = ["Grid"]

MOST = 100_000
"""More arms than anyone means."""


class Grid:
    """Tries every combination of the choices and of evenly spaced values of each range."""

    name: ClassVar[str] = "grid"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"points": 2}}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `grid`."""

        points: int = option(5, "values of each range, including both ends", ge=1)
        shuffle: int | None = option(
            None,
            "seed of a random order; by default the order of the file, with the first axis varying slowest",
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def ask(self, history: Sequence[Entry], space: Sequence[SearchAxis]) -> list[Arm]:
        """The first combination that wasn't tried."""
        there = tried_arms(history)
        arms: Iterable[Arm] = self._combinations(space)
        if self.config.shuffle is not None:
            arms = list(islice(arms, MOST))
            random.Random(self.config.shuffle).shuffle(arms)
        return list(islice((arm for arm in arms if key_of(arm) not in there), 1))

    def size(self, space: Sequence[SearchAxis]) -> int:
        """How many combinations there are; past the accepted most, at least so many."""
        values = [len(spread(axis, self.config.points)) for axis in space]
        if not any(axis.when for axis in space):
            return math.prod(values)
        return sum(1 for _ in islice(self._combinations(space), MOST + 1))

    def validate_space(self, space: Sequence[SearchAxis]) -> Iterator[str]:
        """A space of too many combinations is none for a grid."""
        if (size := self.size(space)) > MOST:
            count = f"{size:,}" if size > MOST + 1 else "too many"
            yield f"a grid over these axes has {count} arms; at most {MOST:,} are accepted"

    def _combinations(
        self, space: Sequence[SearchAxis], arm: Mapping[str, Any] | None = None
    ) -> Iterator[Arm]:
        """The arms that begin with `arm`, the first axis varying slowest."""
        arm = arm or {}
        if not space:
            yield arm
            return
        axis, rest = space[0], space[1:]
        if not axis.applies(arm):
            yield from self._combinations(rest, arm)
            return
        for value in spread(axis, self.config.points):
            yield from self._combinations(rest, {**arm, axis.path: value})
