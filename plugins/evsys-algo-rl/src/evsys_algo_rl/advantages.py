"""From rewards to advantages: how much better a rollout did than what could be expected of its task.

Groups hold rewards that exist: a rollout without a score is left out before any mean is taken, and a group of which one
rollout is left gives no signal. If all rewards of a group are equal up to rounding, every estimator that compares gives
exactly 0, without a division.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evsys.types import REWARD_TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    type Rewards = NDArray[np.float64]

__all__ = ["ESTIMATORS", "advantages", "is_flat"]

EPS = 1e-6
"""Added to a standard deviation that is divided by."""


def advantages(estimator: str, groups: Sequence[Rewards]) -> list[Rewards]:
    """The advantage of each reward.

    Args:
        estimator: one of `ESTIMATORS`.
        groups: the rewards of each task's rollouts, all finite.

    Returns:
        An array a group, in the shape of its rewards.

    Raises:
        ValueError: there is no such estimator.
    """
    try:
        estimate = ESTIMATORS[estimator]
    except KeyError:
        raise ValueError(
            f"there is no advantage {estimator!r}; choose one of {', '.join(ESTIMATORS)}"
        ) from None
    return estimate([np.asarray(rewards, dtype=np.float64) for rewards in groups])


def is_flat(estimator: str, rewards: Rewards) -> bool:
    """True for a group from which nothing can be learnt: no difference to compare, or without a baseline no reward."""
    if estimator == "none":
        return not np.any(rewards)
    return len(rewards) < 2 or bool(np.ptp(rewards) <= REWARD_TOLERANCE * max(1.0, np.abs(rewards).max()))


def _centred(rewards: Rewards) -> Rewards:
    if is_flat("mean", rewards):
        return np.zeros_like(rewards)
    return rewards - rewards.mean()


def _mean(groups: Sequence[Rewards]) -> list[Rewards]:
    """R - mean (Dr. GRPO, https://arxiv.org/abs/2503.20783)."""
    return [_centred(rewards) for rewards in groups]


def _mean_std(groups: Sequence[Rewards]) -> list[Rewards]:
    """(R - mean) / (std + eps) (GRPO, https://arxiv.org/abs/2402.03300); easy and hard tasks get larger steps by it."""
    return [_centred(rewards) / (rewards.std() + EPS) if len(rewards) else rewards for rewards in groups]


def _rloo(groups: Sequence[Rewards]) -> list[Rewards]:
    """R - mean of the others (RLOO, https://arxiv.org/abs/2402.14740)."""
    return [_centred(rewards) * (len(rewards) / max(len(rewards) - 1, 1)) for rewards in groups]


def _batch_std(groups: Sequence[Rewards]) -> list[Rewards]:
    """R - mean of the group, over the standard deviation of that in the whole batch (https://arxiv.org/abs/2510.13786)."""
    centred = [_centred(rewards) for rewards in groups]
    everything = np.concatenate(centred) if centred else np.zeros(0)
    if not np.any(everything):
        return centred
    scale = everything.std() + EPS
    return [rewards / scale for rewards in centred]


def _none(groups: Sequence[Rewards]) -> list[Rewards]:
    """The reward itself: REINFORCE without a baseline (https://doi.org/10.1007/BF00992696)."""
    return [rewards.copy() for rewards in groups]


ESTIMATORS: Mapping[str, Callable[[Sequence[Rewards]], list[Rewards]]] = {
    "mean": _mean,
    "mean_std": _mean_std,
    "rloo": _rloo,
    "batch_std": _batch_std,
    "none": _none,
}
"""The values of `advantage`."""
