"""`random`: arms drawn evenly and apart from each other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import SearchAxis
from evsys_std.search.space import Arm, Entry, arm_of, key_of, limit_arms, tried_arms, value_at

__all__ = ["Random"]

TRIES = 1_000
"""Draws in a row that were all tried before, after which a space counts as used up."""


class Random:
    """Draws each value independently. Better than a grid for more than two axes (Bergstra & Bengio 2012)."""

    name: ClassVar[str] = "random"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `random`."""

        arms: int = option(20, "arms in all", ge=1)
        seed: int = option(0, "seed of the draws", ge=0)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def ask(self, history: Sequence[Entry], space: Sequence[SearchAxis]) -> list[Arm]:
        """A draw that wasn't tried."""
        if len(history) >= self.config.arms:
            return []
        there = tried_arms(history)
        for number in range(len(history), len(history) + TRIES):
            arm = self._draw(number, space)
            if key_of(arm) not in there:
                return [arm]
        return []

    def size(self, space: Sequence[SearchAxis]) -> int:
        """The arms that there are going to be."""
        return limit_arms(self.config.arms, space)

    def _draw(self, number: int, space: Sequence[SearchAxis]) -> Arm:
        def choose(_index: int, axis: SearchAxis) -> Any:
            # Each axis draws from a source of its own, so that one more axis changes nothing about the others.
            return value_at(axis, random.Random(f"{self.config.seed}/{number}/{axis.path}").random())

        return arm_of(space, choose)
