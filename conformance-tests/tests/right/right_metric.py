"""Metrics that keep their contract, each written in another way."""

import math
from statistics import fmean
from typing import ClassVar

import attrs
import numpy as np


class Plain:
    def compute(self, task_rewards):
        return fmean(max(rewards) for rewards in task_rewards) if task_rewards else math.nan


@attrs.define(kw_only=True)
class BestOf:
    """Its own Config, of k samples."""

    conformance: ClassVar = {"params": {"k": 2}}
    direction: ClassVar[str] = "max"
    k: int = attrs.field(validator=attrs.validators.ge(1))

    def compute(self, task_rewards):
        if any(len(rewards) < self.k for rewards in task_rewards):
            raise ValueError("too few samples")
        return np.mean([max(rewards[: self.k]) for rewards in task_rewards]) if task_rewards else 0


class FailureRate:
    direction = "min"
    needs_samples = 2
    value_range = (0.0, 1.0)

    def compute(self, task_rewards):
        if any(len(rewards) < 2 for rewards in task_rewards):
            raise ValueError("it looks at two samples of a task")
        rewards = [reward for rewards in task_rewards for reward in rewards]
        return sum(reward < 1 for reward in rewards) / max(1, len(rewards))


class Tokens:
    direction = "min"

    def compute_rollouts(self, task_rollouts):
        used = [r.usage.completion_tokens for rollouts in task_rollouts.values() for r in rollouts]
        return sum(used) / len(used) if used else float("nan")
