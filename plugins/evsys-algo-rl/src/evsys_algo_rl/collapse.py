"""Is the training falling apart? Detectors over the metrics of the last steps, each with its reason in words."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import attrs

__all__ = ["Collapse", "CollapseDetector"]

WINDOW = 5
"""Steps in a row in which something must hold, so that no single odd batch ends a run."""

HISTORY = 20
"""The number of past steps considered."""

ENTROPY_FLOOR = 1e-4
"""Nats a token. A policy that has learnt its task may be nearly certain; below this it has no choice left at all."""

KL_LIMIT, KL_FACTOR = 0.5, 4.0
"""Sampler and trainer are one policy but for staleness and rounding: a mean KL that grew to this is a broken ratio."""

LENGTH_FACTOR = 3.0
REPETITION_LIMIT = 0.8

REWARD_WINDOW = 10
"""Steps that a mean of the reward is taken over: the reward of one step says little where few rollouts succeed."""

REWARD_LASTS = REWARD_WINDOW + WINDOW - 1
"""Steps that a fall of the reward is seen over: each of the last windows has it, so that one that was unlucky is nothing."""

REWARD_DROP = 0.5

ERRORS = 5.0
"""Standard errors that a change must have. Many windows are compared, the luckiest with the others: at less, noise alone stops runs."""

KEPT = (
    "reward",
    "entropy",
    "kl_sampler_trainer",
    "length_mean",
    "truncated_share",
    "repetition",
    "zero_variance_share",
)


@attrs.frozen
class Collapse:
    """The fault, in words, and the number of steps that it has lasted."""

    reason: str
    lasted: int


class CollapseDetector:
    """Looks at each step's metrics. Its history is part of a checkpoint."""

    def __init__(self) -> None:
        self._seen: deque[dict[str, float]] = deque(maxlen=HISTORY)
        self._best: _Level | None = None
        self._first_length: float | None = None

    def state(self) -> dict[str, Any]:
        """Its history, as JSON values."""
        best = None if self._best is None else attrs.asdict(self._best)
        return {"seen": list(self._seen), "best": best, "first_length": self._first_length}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""
        self._seen = deque(state["seen"], maxlen=HISTORY)
        self._best = None if state["best"] is None else _Level(**state["best"])
        self._first_length = state["first_length"]

    def add(self, metrics: Mapping[str, float]) -> Collapse | None:
        """Take in a step, and say what collapses, or None."""
        broken = [name for name in KEPT if name in metrics and not math.isfinite(metrics[name])]
        if broken:
            return Collapse(f"{broken[0]} is {metrics[broken[0]]}", 1)
        self._seen.append({name: float(metrics[name]) for name in KEPT if name in metrics})
        if self._first_length is None and len(self._seen) == WINDOW:
            self._first_length = fmean(self._last("length_mean") or [0.0])
        if rewards := self._last("reward", REWARD_WINDOW):
            level = _Level.of(rewards)
            if self._best is None or level.mean > self._best.mean:
                self._best = level
        return next((Collapse(text, steps) for text, steps in self._complaints() if text is not None), None)

    def _complaints(self) -> Iterable[tuple[str | None, int]]:
        yield self._entropy(), WINDOW
        yield self._divergence(), WINDOW
        yield self._length(), WINDOW
        yield self._repetition(), WINDOW
        yield self._reward(), REWARD_LASTS

    def _last(self, name: str, count: int = WINDOW) -> list[float]:
        """The values of the last steps; empty where one of them has none."""
        steps = list(self._seen)[-count:]
        if len(steps) < count or any(name not in step for step in steps):
            return []
        return [step[name] for step in steps]

    def _entropy(self) -> str | None:
        values = self._last("entropy")
        # A policy that is certain and right has learnt its task.
        if not values or max(values) >= ENTROPY_FLOOR or self._at_its_best():
            return None
        return f"the policy makes no choices any more: its entropy is {values[-1]:.2g} nats a token"

    def _divergence(self) -> str | None:
        values = self._last("kl_sampler_trainer")
        if not values or min(values) < KL_LIMIT:
            return None
        history = [step["kl_sampler_trainer"] for step in self._seen if "kl_sampler_trainer" in step]
        if len(history) < 2 * WINDOW:
            return None
        # Its noise is one of factors: a few tokens make most of it.
        logs = [math.log(max(value, KL_LIMIT / KL_FACTOR)) for value in history]
        before, now = _Level.of(logs[:WINDOW]), _Level.of(logs[-WINDOW:])
        if now.mean - before.mean < math.log(KL_FACTOR) or not now.clearly_above(before):
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
        values = self._last("repetition")
        if not values or min(values) < REPETITION_LIMIT or self._at_its_best():
            return None
        return f"answers repeat themselves: {values[-1]:.0%} of their runs of four tokens were there before"

    def _reward(self) -> str | None:
        values = self._last("reward", REWARD_LASTS)
        best = self._best
        if not values or best is None or best.mean <= 0:
            return None
        levels = (_Level.of(values[start : start + REWARD_WINDOW]) for start in range(WINDOW))
        if not all(level.mean <= REWARD_DROP * best.mean and best.clearly_above(level) for level in levels):
            return None
        return f"the reward fell from {best.mean:.3g} to {fmean(values[-REWARD_WINDOW:]):.3g}"

    def _at_its_best(self) -> bool:
        """False where the reward was clearly better once, or never good at all; not known before there is a window of it."""
        best, rewards = self._best, self._last("reward", REWARD_WINDOW)
        if best is None or not rewards:
            return len(self._seen) < REWARD_WINDOW
        level = _Level.of(rewards)
        return best.mean > 0 and not (level.mean < 0.9 * best.mean and best.clearly_above(level))


@attrs.frozen
class _Level:
    """Mean and variance over some steps. Steps differ by the noise of tasks, samples and verdicts."""

    mean: float
    variance: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> _Level:
        """The level of two steps or more."""
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, variance, len(values))

    def clearly_above(self, other: _Level) -> bool:
        """True where this one is higher by more than chance explains."""
        # The greater of both: a window in which no rollout succeeded shows no noise, and has it all the same.
        variance = max(self.variance, other.variance)
        return self.mean - other.mean > ERRORS * math.sqrt(variance * (1.0 / self.count + 1.0 / other.count))
