"""The expected effect of the best of several arms in a new run: effects shrunk towards zero by the share of them
that is luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from evsys.types import Comparison

__all__ = ["shrunken_effects", "with_shrunken_effects"]


def shrunken_effects(effects: Sequence[float], errors: Sequence[float]) -> list[float]:
    """The expected true effects, given the effects of several arms and their standard errors.

    True effects are taken for normal around 0 with a variance of their own, which is what the squares of the effects exceed the squared errors by.
    Source: Efron & Morris 1975, "Data analysis using Stein's estimator and its generalizations". Around 0 and not around their mean, because
    the luck of a shared baseline moves all of them.
    """
    excess = math.fsum(effect**2 - error**2 for effect, error in zip(effects, errors, strict=True))
    variance = max(0.0, excess / len(effects))
    return [
        effect * variance / (variance + error**2) if variance > 0 else 0.0
        for effect, error in zip(effects, errors, strict=True)
    ]


def with_shrunken_effects(
    comparisons: Sequence[Comparison], errors: Sequence[float | None]
) -> tuple[Comparison, ...]:
    """The comparisons of several arms with their shrunken effects; as they are if fewer than two have an effect."""
    known = [
        (place, comparison.effect, error)
        for place, (comparison, error) in enumerate(zip(comparisons, errors, strict=True))
        if comparison.effect is not None and error is not None
    ]
    if len(known) < 2:
        return tuple(comparisons)
    made = shrunken_effects([effect for _, effect, _ in known], [error for *_, error in known])
    found = list(comparisons)
    for (place, *_), shrunken in zip(known, made, strict=True):
        found[place] = attrs.evolve(found[place], shrunken_effect=shrunken)
    return tuple(found)
