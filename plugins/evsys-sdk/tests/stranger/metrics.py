"""Metrics: of rewards, of a family, and of whole rollouts."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, assert_type

import attrs

from evsys_sdk import Rollout, option, register_metric


@register_metric("worst")
class Worst:
    """The lowest reward of all."""

    direction: ClassVar[Literal["max", "min"]] = "max"

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return min(min(rewards) for rewards in task_rewards)


@register_metric("best@k")
@attrs.frozen(kw_only=True)
class BestAtK:
    """Its own Config; `best@3` is this with `k` set to 3."""

    k: int = option(..., "Samples of a task that are looked at.", ge=1)

    @property
    def needs_samples(self) -> int:
        return self.k

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return sum(max(rewards[: self.k]) for rewards in task_rewards) / len(task_rewards)


@register_metric("tokens_per_answer")
class TokensPerAnswer:
    """What an answer costs."""

    direction: ClassVar[Literal["max", "min"]] = "min"

    def compute_rollouts(self, task_rollouts: Mapping[str, Sequence[Rollout]]) -> float:
        counts = [r.usage.completion_tokens for rollouts in task_rollouts.values() for r in rollouts]
        return sum(counts) / len(counts)


assert_type(BestAtK(k=2).k, int)
assert_type(Worst().compute([[0.5]]), float)
