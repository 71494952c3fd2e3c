"""`sobol`: arms that fill the space evenly."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import SearchAxis
from evsys_std.search.space import Arm, Entry, arm_of, key_of, limit_arms, tried_arms, value_at

__all__ = ["Sobol"]

BITS = 30

DIRECTIONS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
    (6, 19, (1, 1, 1, 15, 7, 5)),
    (6, 22, (1, 3, 1, 15, 13, 25)),
    (6, 25, (1, 1, 5, 5, 19, 61)),
    (7, 1, (1, 3, 7, 11, 23, 15, 103)),
    (7, 4, (1, 3, 7, 13, 13, 15, 69)),
)
"""Degree and coefficients of a primitive polynomial, and initial direction numbers, from the second axis on: the first
of those that S. Joe and F. Y. Kuo chose (SIAM J. Sci. Comput. 30, 2008)."""

MOST_AXES = len(DIRECTIONS) + 1

SPARE = 1_000
"""Points beyond one for each arm looked at where points fall on arms tried."""


class Sobol:
    """Follows a Sobol sequence: any part of it covers the space, most evenly in powers of two. At most 21 axes.

    The points are shifted by `seed` (a digital shift), which keeps how evenly they lie.
    """

    name: ClassVar[str] = "sobol"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `sobol`."""

        arms: int = option(16, "arms in all; powers of two cover the space best", ge=1)
        seed: int = option(0, "seed of the shift", ge=0)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def ask(self, history: Sequence[Entry], space: Sequence[SearchAxis]) -> list[Arm]:
        """The first point of the sequence that wasn't tried."""
        if len(history) >= self.config.arms:
            return []
        there = tried_arms(history)
        points = sequence(len(space), self.config.seed)
        for _, point in zip(range(len(history) + SPARE), points, strict=False):
            arm = _arm_at(point, space)
            if key_of(arm) not in there:
                return [arm]
        return []

    def size(self, space: Sequence[SearchAxis]) -> int:
        """The arms that there are going to be."""
        return limit_arms(self.config.arms, space)

    def validate_space(self, space: Sequence[SearchAxis]) -> Iterator[str]:
        """There are direction numbers for so many axes only."""
        if len(space) > MOST_AXES:
            yield f"sobol takes at most {MOST_AXES} axes, and there are {len(space)}"


def _arm_at(point: Sequence[float], space: Sequence[SearchAxis]) -> Arm:
    return arm_of(space, lambda index, axis: value_at(axis, point[index]))


def sequence(dimensions: int, seed: int) -> Iterator[tuple[float, ...]]:
    """The points of a shifted Sobol sequence in so many dimensions, each coordinate from 0 to below 1."""
    directions = [_directions(dimension) for dimension in range(dimensions)]
    shift = random.Random(f"sobol/{seed}")
    point = [shift.getrandbits(BITS) for _ in range(dimensions)]
    for index in range(1, 1 << BITS):
        yield tuple(one / (1 << BITS) for one in point)
        # In the order of the Gray code one direction number changes each coordinate (Antonov & Saleev 1979).
        zero = (index & -index).bit_length() - 1
        point = [one ^ directions[dimension][zero] for dimension, one in enumerate(point)]


def _directions(dimension: int) -> list[int]:
    """The direction numbers of one dimension, as integers of `BITS` bits."""
    if dimension == 0:
        return [1 << (BITS - 1 - index) for index in range(BITS)]
    degree, coefficients, initial = DIRECTIONS[dimension - 1]
    numbers = [first << (BITS - 1 - index) for index, first in enumerate(initial)]
    for index in range(degree, BITS):
        number = numbers[index - degree] ^ (numbers[index - degree] >> degree)
        for back in range(1, degree):
            if coefficients >> (degree - 1 - back) & 1:
                number ^= numbers[index - back]
        numbers.append(number)
    return numbers
