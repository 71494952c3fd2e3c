"""The effect of a rollout's length on its reward. The verifier's own reward is recorded alongside the shaped one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys.types import reaches

if TYPE_CHECKING:
    from evsys_algo_rl.params import RLParams

__all__ = ["LARGEST", "is_reward", "length_penalty", "overlong_penalty", "shaped"]


LARGEST = 1e12
"""Rewards beyond that, up or down, aren't trained on: losses are float32, and squares of gradients must fit as well."""

CORRECT = 1.0
"""From this reward on a rollout counts as right, and its length is worth a penalty."""


def is_reward(value: float) -> bool:
    """True for a number that can be trained on: finite, and not so large that losses overflow."""
    return abs(value) <= LARGEST


def overlong_penalty(length: int, longest: int, buffer: int) -> float:
    """0 up to `longest - buffer` tokens, then falling in a line to -1 at `longest` (DAPO, arXiv 2503.14476, eq. 13)."""
    start = longest - buffer
    if length <= start:
        return 0.0
    return -min((length - start) / buffer, 1.0)


def length_penalty(length: int, target: int) -> float:
    """By what share of the target a rollout is longer than it: `max(0, length - target) / target`."""
    return max(0, length - target) / target


def shaped(reward: float, length: int, longest: int, params: RLParams) -> float:
    """A reward with the penalties that the params ask for.

    Args:
        reward: the verifier's.
        length: tokens that the model wrote.
        longest: most tokens that it may write.
        params: of the algorithm.
    """
    found = reward
    if params.overlong == "penalise":
        found += overlong_penalty(length, longest, min(params.overlong_buffer or longest // 4 or 1, longest))
    if params.length_penalty and reaches(reward, CORRECT):
        target = params.length_target or max(longest // 2, 1)
        found -= params.length_penalty * length_penalty(length, target)
    return found
