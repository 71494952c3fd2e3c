"""The metric `reward_spread`: how much do the answers to one question differ?"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

__all__ = ["RewardSpread"]


class RewardSpread:
    """The mean over tasks of the best reward minus the worst; 0 is a model that is always as good.

    It has no `Config`, so it takes no params.
    """

    name: ClassVar[str] = "reward_spread"
    direction: ClassVar[Literal["max", "min"]] = "min"
    needs_samples: ClassVar[int] = 2

    def task_value(self, rewards: Sequence[float]) -> float:
        """The value of one task; from those of all tasks evsys makes the interval."""
        if len(rewards) < self.needs_samples:
            raise ValueError("reward_spread needs two scored samples of a task or more")
        return max(rewards) - min(rewards)

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """The mean over tasks; NaN, which means "not available", where there is none."""
        if not task_rewards:
            return math.nan
        values = [self.task_value(rewards) for rewards in task_rewards]
        return math.fsum(values) / len(values)
