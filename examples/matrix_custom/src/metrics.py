from collections.abc import Sequence
from typing import ClassVar

from evsys_sdk import register_metric


@register_metric("best@2")
class BestOfTwo:
    """Mean over tasks of the better of two answers."""

    name: ClassVar[str] = "best@2"
    direction: ClassVar[str] = "max"

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return sum(max(rewards[:2]) for rewards in task_rewards) / len(task_rewards)
