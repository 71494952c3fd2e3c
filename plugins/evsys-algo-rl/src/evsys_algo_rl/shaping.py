"""What a rollout's length does to its reward. The verifier's own reward is recorded beside the shaped one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys_algo_rl.params import RLParams

__all__ = ["OVERLONG", "length_penalty", "overlong_penalty", "shaped"]

OVERLONG = ("keep", "mask", "penalise")
"""What is done about rollouts that were cut off: nothing, no loss on them, or a lower reward from before the limit."""

CORRECT = 1.0
"""From this reward on a rollout counts as right, and its length is worth a penalty."""


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
    if params.length_penalty and reward >= CORRECT:
        target = params.length_target or max(longest // 2, 1)
        found -= params.length_penalty * length_penalty(length, target)
    return found
