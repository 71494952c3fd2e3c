"""Metrics with one fault each."""

import math
from typing import ClassVar

import attrs

from evsys import option


class Right:
    def compute(self, task_rewards):
        if not task_rewards:
            return math.nan
        means = [math.fsum(rewards) / len(rewards) for rewards in task_rewards]
        return math.fsum(means) / len(means)


class Infinite(Right):
    def compute(self, task_rewards):
        seen = {reward for rewards in task_rewards for reward in rewards}
        return math.inf if {0.0, 1.0} <= seen else super().compute(task_rewards)


class FirstTaskOnly(Right):
    def compute(self, task_rewards):
        return super().compute(task_rewards[:1])


class FailsWithoutTasks(Right):
    def compute(self, task_rewards):
        return sum(map(max, task_rewards)) / len(task_rewards)


class TakesFewer(Right):
    conformance: ClassVar = {"params": {"k": 2}}

    @attrs.frozen(kw_only=True)
    class Config:
        k: int = option(..., "samples", ge=1)

    def __init__(self, *, k):
        self.k = k

    def compute(self, task_rewards):
        return super().compute([[max(rewards[: self.k])] for rewards in task_rewards])


class Upwards(Right):
    direction = "up"


class Backwards(Right):
    def compute(self, task_rewards):
        return 1 - super().compute(task_rewards)


class Outside(Right):
    value_range = (0.0, 0.5)


class SaysNoDirection:
    def compute_rollouts(self, task_rollouts):
        used = [r.usage.completion_tokens for rollouts in task_rollouts.values() for r in rollouts]
        return sum(used) / len(used) if used else math.nan


class ExpectsAMapping(Right):
    def compute(self, task_rewards):
        return super().compute(list(task_rewards.values())) if task_rewards else math.nan


class ExpectsListsOfRollouts:
    direction = "min"

    def compute_rollouts(self, task_rollouts):
        used = [rollout.usage.completion_tokens for rollouts in task_rollouts for rollout in rollouts]
        return sum(used) / len(used) if used else math.nan


class GivesAMapping(Right):
    def compute(self, task_rewards):
        return {"mean": super().compute(task_rewards)}


class mean_reward(Right):
    pass
