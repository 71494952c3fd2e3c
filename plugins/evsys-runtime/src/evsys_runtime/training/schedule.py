"""Learning rates: how high for a model, and how they change over a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Schedule", "learning_rate_at", "recommended_learning_rate"]

_FULL = 5e-5
_LORA_FACTOR, _SHORT_RUN_FACTOR, _SHORT_RUN = 10.0, 15.0, 100
_EXPONENTS = {"llama": 0.781, "qwen": 0.0775}

# Family and hidden size by name, from the models' published configurations.
_KNOWN: tuple[tuple[str, str, int], ...] = (
    (r"evsys/tiny$", "llama", 128),
    (r"smollm2?-135m", "llama", 576),
    (r"smollm2?-360m", "llama", 960),
    (r"smollm2?-1\.7b", "llama", 2048),
    (r"llama-3\.2-1b", "llama", 2048),
    (r"llama-3\.2-3b", "llama", 3072),
    (r"llama-3(\.1)?-8b", "llama", 4096),
    (r"llama-3(\.\d)?-70b", "llama", 8192),
    (r"qwen3-0\.6b", "qwen", 1024),
    (r"qwen3-1\.7b", "qwen", 2048),
    (r"qwen3-4b", "qwen", 2560),
    (r"qwen3-8b", "qwen", 4096),
    (r"qwen3-14b", "qwen", 5120),
    (r"qwen3-32b", "qwen", 5120),
    (r"qwen3-30b-a3b", "qwen", 2048),
    (r"qwen3-235b-a22b", "qwen", 4096),
    (r"qwen2(\.5)?-0\.5b", "qwen", 896),
    (r"qwen2(\.5)?-1\.5b", "qwen", 1536),
    (r"qwen2\.5-3b", "qwen", 2048),
    (r"qwen2(\.5)?-7b", "qwen", 3584),
    (r"qwen2\.5-14b", "qwen", 5120),
    (r"qwen2\.5-32b", "qwen", 5120),
)


def recommended_learning_rate(model: str, *, lora: bool = True, steps: int = _SHORT_RUN) -> float | None:
    """A peak learning rate for supervised training of a known model; None where there would only be a guess.

    `5e-5 * 10 * (2000 / hidden size) ** exponent`, the exponent fitted by family (get_lr of the Tinker cookbook,
    https://tinker-docs.thinkingmachines.ai/supervised-learning/sl-hyperparams). The factor 10 between LoRA and full
    fine-tuning is 15 for runs under 100 steps, and 1 without LoRA (https://thinkingmachines.ai/blog/lora/).

    Args:
        model: the base model's name, in any letter case.
        lora: False when all weights are trained.
        steps: optimiser steps of the run.
    """
    name = model.lower()
    for pattern, family, width in _KNOWN:
        if re.search(rf"(^|[/_-]){pattern}", name):
            factor = (_SHORT_RUN_FACTOR if steps < _SHORT_RUN else _LORA_FACTOR) if lora else 1.0
            return float(f"{_FULL * factor * (2000 / width) ** _EXPONENTS[family]:.2g}")
    return None


@attrs.frozen(kw_only=True)
class Schedule:
    """How the learning rate of a run changes; a checkpoint keeps it, so that a fork can report what it changes.

    Attributes:
        kind: `linear`, `cosine` or `constant`.
        steps: at which a falling rate reaches 0.
        peak: the highest rate.
        warmup_steps: in which it rises.
        factor: multiplies the rate, below 1 after the run went back behind a collapse.
    """

    kind: str
    steps: int
    peak: float
    warmup_steps: int = 0
    factor: float = 1.0

    @classmethod
    def of(cls, params: Any, *, steps: int, peak: float, factor: float) -> Schedule:
        """That of a run of so many steps; `params` are those of its algorithm."""
        return cls(
            kind=params.lr_schedule,
            steps=params.schedule_steps or steps,
            peak=peak,
            warmup_steps=params.warmup_steps,
            factor=factor,
        )

    def at(self, step: int) -> float:
        """The rate of one step, counted from 0."""
        return self.factor * learning_rate_at(step, self.steps, self.peak, self.kind, self.warmup_steps)

    def standstill(self, start: int, end: int) -> str | None:
        """A warning if steps of those from `start` to before `end` have a rate of 0, which trains nothing."""
        if start >= end:
            return None
        if not any(self.at(step) for step in range(start, end)):
            return "the learning rate is 0 at every step, so nothing is trained"
        if self.kind != "constant" and self.steps < end:
            return f"the learning rate is 0 from step {self.steps + 1} on (schedule_steps)"
        return None

    def state(self) -> Mapping[str, Any]:
        """JSON values for a checkpoint."""
        return attrs.asdict(self)

    def change_since(self, kept: Mapping[str, Any], step: int) -> str | None:
        """A warning if the rate of a step, counted from 0, isn't that of the schedule that a checkpoint keeps; None if it is."""
        before = Schedule(**{**kept, "factor": self.factor})
        then, now = before.at(step), self.at(step)
        if math.isclose(then, now, rel_tol=1e-6, abs_tol=1e-15):
            return None
        text = f"the learning rate of step {step + 1} is {now:.3g}, and was to be {then:.3g} by the schedule of the checkpoint"
        if self.kind == before.kind != "constant" and self.steps != before.steps:
            text += (
                f": its {self.kind} decay reaches 0 at step {self.steps}, then at step {before.steps}; "
                f"to keep that, set algorithm.params.schedule_steps to {before.steps}"
            )
        return text


def learning_rate_at(
    step: int, total: int, peak: float, schedule: str = "linear", warmup_steps: int = 0
) -> float:
    """The learning rate of one step.

    Args:
        step: which step, counted from 0.
        total: how many steps there are.
        peak: the highest rate.
        schedule: `linear` falls from the peak towards 0, which the step after the last would have; `cosine` likewise
            along half a cosine; `constant` stays.
        warmup_steps: steps in which the rate rises evenly, the last of them at the peak.

    Raises:
        ValueError: unknown schedule.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(total - warmup_steps, 1)
    if schedule == "constant":
        return peak
    if schedule == "linear":
        return peak * max(1.0 - done, 0.0)
    if schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    raise ValueError(f"unknown learning-rate schedule {schedule!r}; choose linear, constant or cosine")
