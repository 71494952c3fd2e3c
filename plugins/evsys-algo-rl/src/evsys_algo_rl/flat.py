"""Steps in which nothing could be learnt, and when it is time to stop because of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys.types import reaches
from evsys_algo_rl.shaping import CORRECT

__all__ = ["FlatSteps"]


class FlatSteps:
    """Counts steps in a row in which no group had rewards to compare.

    Args:
        most: so many of them are enough.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def state(self) -> Any:
        """How many there are by now, as a JSON value."""
        return self._count

    def load_state(self, state: Any) -> None:
        """Continue from what `state` gave."""
        self._count = int(state)

    def add(self, metrics: Mapping[str, float]) -> str | None:
        """Take in a step; what to show where it is time to stop, else None."""
        if metrics.get("zero_variance_share", 0.0) < 1.0:
            self._count = 0
            return None
        self._count += 1
        if self._count < self._most:
            return None
        steps = "step" if self._most == 1 else f"{self._most} steps"
        reward = metrics.get("reward", 0.0)
        why = (
            "the tasks are solved"
            if reaches(reward, CORRECT)
            else "they are too hard, or judged too coarsely"
        )
        return (
            f"in the last {steps} no group had rewards that differ (their mean is {reward:.3g}), so there is nothing to learn: "
            f"{why}"
        )
