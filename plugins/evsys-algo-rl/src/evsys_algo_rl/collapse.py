"""Is the training falling apart? Detectors over the metrics of the last steps, each with its reason in words."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CollapseDetector"]

WINDOW = 5
"""Steps in a row in which something must hold, so that no single odd batch ends a run."""

HISTORY = 20
"""Steps that a slope is taken over."""

ENTROPY_FLOOR = 1e-4
"""Nats a token. A policy that has learnt its task may be nearly certain; below this it has no choice left at all."""

KL_LIMIT, KL_FACTOR = 0.5, 4.0
"""Sampler and trainer are one policy but for staleness and rounding: a mean KL that grew to this is a broken ratio."""

LENGTH_FACTOR = 3.0
REPETITION_LIMIT = 0.8
REWARD_DROP = 0.5

KEPT = (
    "reward",
    "entropy",
    "kl_sampler_trainer",
    "length_mean",
    "truncated_share",
    "repetition",
    "zero_variance_share",
)


class CollapseDetector:
    """Looks at each step's metrics. What it has seen is part of a checkpoint."""

    def __init__(self) -> None:
        self._seen: deque[dict[str, float]] = deque(maxlen=HISTORY)
        self._best: float | None = None
        self._first_length: float | None = None

    def state(self) -> dict[str, Any]:
        """What it has seen, as JSON values."""
        return {"seen": list(self._seen), "best": self._best, "first_length": self._first_length}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._seen = deque(state["seen"], maxlen=HISTORY)
        self._best, self._first_length = state["best"], state["first_length"]

    def add(self, metrics: Mapping[str, float]) -> str | None:
        """Take in a step, and say what collapses, or None."""
        broken = [name for name in KEPT if name in metrics and not math.isfinite(metrics[name])]
        if broken:
            return f"{broken[0]} is {metrics[broken[0]]}"
        self._seen.append({name: float(metrics[name]) for name in KEPT if name in metrics})
        if self._first_length is None and len(self._seen) == WINDOW:
            self._first_length = _mean(self._last("length_mean"))
        found = next((text for text in self._complaints() if text is not None), None)
        reward = self._last("reward")
        if len(reward) == WINDOW:
            self._best = max(_mean(reward), -math.inf if self._best is None else self._best)
        return found

    def _complaints(self) -> Iterable[str | None]:
        yield self._entropy()
        yield self._divergence()
        yield self._length()
        yield self._repetition()
        yield self._reward()

    def _last(self, name: str) -> list[float]:
        """The values of the last steps; empty where one of them has none."""
        steps = list(self._seen)[-WINDOW:]
        if len(steps) < WINDOW or any(name not in step for step in steps):
            return []
        return [step[name] for step in steps]

    def _entropy(self) -> str | None:
        values, rewards = self._last("entropy"), self._last("reward")
        # A policy that is certain and right has learnt its task.
        if not values or max(values) >= ENTROPY_FLOOR or (rewards and self._at_its_best(rewards)):
            return None
        return f"the policy makes no choices any more: its entropy is {values[-1]:.2g} nats a token"

    def _divergence(self) -> str | None:
        values = self._last("kl_sampler_trainer")
        if not values or min(values) < KL_LIMIT:
            return None
        history = [step["kl_sampler_trainer"] for step in self._seen if "kl_sampler_trainer" in step]
        if len(history) < 2 * WINDOW:
            return None
        rose = _mean(values) >= KL_FACTOR * max(_mean(history[:WINDOW]), KL_LIMIT / KL_FACTOR)
        if not rose or float(np.polyfit(range(len(history)), history, 1)[0]) <= 0:
            return None
        return f"sampler and trainer drift apart: their KL rose from {history[0]:.2g} to {values[-1]:.2g}"

    def _length(self) -> str | None:
        values, cut = self._last("length_mean"), self._last("truncated_share")
        if not values or self._first_length is None or not cut:
            return None
        if min(values) < LENGTH_FACTOR * max(self._first_length, 1.0) or min(cut) < 0.5:
            return None
        return f"answers grew from {self._first_length:.0f} to {values[-1]:.0f} tokens, and most are cut off"

    def _repetition(self) -> str | None:
        values, rewards = self._last("repetition"), self._last("reward")
        if not values or min(values) < REPETITION_LIMIT or (rewards and self._at_its_best(rewards)):
            return None
        return f"answers repeat themselves: {values[-1]:.0%} of their runs of four tokens were there before"

    def _reward(self) -> str | None:
        values = self._last("reward")
        if not values or self._best is None or self._best <= 0:
            return None
        if max(values) > (1.0 - REWARD_DROP) * self._best:
            return None
        return f"the reward fell from {self._best:.3g} to {_mean(values):.3g}"

    def _at_its_best(self, rewards: Sequence[float]) -> bool:
        return self._best is None or (self._best > 0 and _mean(rewards) >= 0.9 * self._best)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
