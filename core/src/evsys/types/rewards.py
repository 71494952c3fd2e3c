"""Comparing rewards."""

from __future__ import annotations

__all__ = ["REWARD_TOLERANCE", "reaches"]

REWARD_TOLERANCE = 1e-9
"""Rewards this close are equal, relative to rewards above 1."""


def reaches(reward: float, threshold: float) -> bool:
    """True if a reward is at least a threshold, up to rounding: the weighted mean of right parts may be 0.8999999999999999.

    Compare rewards with a bound through this function only.
    """
    return reward >= threshold - REWARD_TOLERANCE * max(1.0, abs(threshold))
