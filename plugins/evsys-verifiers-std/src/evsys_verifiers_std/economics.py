"""The cost of an answer: money, time and tokens of one attempt at a task, crashed attempts included.

Each metric is the mean over tasks of the mean over a task's samples, so that more samples don't make a model look
dearer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from evsys.types import Rollout

__all__ = ["CostPerTask", "TimePerTask", "TokensPerTask"]


class _PerTask:
    """The mean over tasks of `task_value`."""

    direction: ClassVar[Literal["max", "min"]] = "min"
    value_range: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def of(self, rollout: Rollout) -> float:
        """The cost of one rollout; NaN if unknown."""
        raise NotImplementedError

    def task_value(self, rollouts: Sequence[Rollout]) -> float:
        """The mean over the samples of one task; NaN where one of them isn't known."""
        return math.fsum(map(self.of, rollouts)) / len(rollouts) if rollouts else math.nan

    def compute_rollouts(self, task_rollouts: Mapping[str, Sequence[Rollout]]) -> float:
        """The mean over the tasks of which it is known; NaN where there is none."""
        values = [self.task_value(rollouts) for rollouts in task_rollouts.values()]
        known = [value for value in values if not math.isnan(value)]
        return math.fsum(known) / len(known) if known else math.nan


class CostPerTask(_PerTask):
    """US dollars of one attempt at a task. Tasks of which a price isn't known are left out and counted."""

    name: ClassVar[str] = "cost_per_task"

    def of(self, rollout: Rollout) -> float:
        """The price of its tokens, 0 where it used none, NaN where no one knows the price."""
        usage = rollout.usage
        return math.nan if usage.without_price else usage.cost_usd or 0.0


class TimePerTask(_PerTask):
    """Seconds of one attempt at a task, from its start to its answer, alongside all others in flight."""

    name: ClassVar[str] = "time_per_task"

    def of(self, rollout: Rollout) -> float:
        """The seconds that passed."""
        return rollout.usage.seconds


class TokensPerTask(_PerTask):
    """Tokens of one attempt at a task, read and written, over all its turns."""

    name: ClassVar[str] = "tokens_per_task"

    def of(self, rollout: Rollout) -> float:
        """Prompt and completion tokens."""
        return float(rollout.usage.prompt_tokens + rollout.usage.completion_tokens)
