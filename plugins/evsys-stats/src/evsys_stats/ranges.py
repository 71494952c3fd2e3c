"""The range of values that a metric can have, so that no interval claims more than that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from evsys.errors import PluginContractError

__all__ = ["OF_REWARDS", "Range", "declared_range", "hull", "range_of", "seen_range"]

type Range = tuple[float, float]
"""The smallest and the largest value; either may be infinite."""

OF_REWARDS = "rewards"
"""The `value_range` of a metric that stays within the range of its rewards."""


def declared_range(plugin: Any, name: str, attribute: str) -> Range | str | None:
    """The declared range of a metric (`value_range`) or a verifier (`reward_range`); None if there isn't one.

    Raises:
        PluginContractError: it declares something else than two ordered numbers, or for a metric "rewards".
    """
    declared = getattr(plugin, attribute, None)
    if declared is None or (attribute == "value_range" and declared == OF_REWARDS):
        return declared
    try:
        low, high = map(float, declared)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low <= high:
        raise PluginContractError(f"{name!r} declares {attribute} = {declared!r}; use (lowest, highest)")
    return low, high


def range_of(declared: Range | str | None, rewards: Range | None) -> Range | None:
    """The range of a metric's values, given that of the rewards; None where it isn't known."""
    return rewards if isinstance(declared, str) else declared


def hull(ranges: Iterable[Range | str | None]) -> Range | None:
    """The smallest range that holds all; None where one isn't known, or where there is none."""
    known: list[Range] = []
    for one in ranges:
        if one is None or isinstance(one, str):
            return None
        known.append(one)
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def seen_range(rewards: Iterable[float]) -> Range | None:
    """(0, 1) for rewards that are all 0 or 1, of a verifier that declares no range; None for any others."""
    return (0.0, 1.0) if set(rewards) <= {0.0, 1.0} else None
