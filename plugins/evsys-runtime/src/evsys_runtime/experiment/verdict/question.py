"""What the experiment asks, from its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from evsys.types import NoiseFloor
from evsys_runtime.config.plan import Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.ranges import Range
from evsys_runtime.experiment.seeds import derive
from evsys_runtime.experiment.verdict.scores import TaskValue

__all__ = ["BASE_MODEL", "Question", "question_of"]

BASE_MODEL = "base_model"


@attrs.frozen(kw_only=True)
class Question:
    """What the experiment asks, fixed before the first step.

    `task_value` computes the success metric on one task, `possible` says which values that can have, given the range of
    rewards (None where it isn't known); `seed` is the bootstrap's. Tasks `left_out` don't count.
    `noise` says how far equal runs of the baseline fall apart, where that is known.
    """

    benchmark: str
    metric: str
    direction: Literal["max", "min"]
    task_value: TaskValue
    baseline: str = BASE_MODEL
    minimum_effect: float = 0.0
    possible: Callable[[Range | None], Range | None] = lambda _rewards: None
    reward_range: Range | None = None
    seed: int = 0
    left_out: frozenset[str] = frozenset()
    noise: NoiseFloor | None = None

    @property
    def name(self) -> str:
        """`<benchmark>.<metric>`."""
        return f"{self.benchmark}.{self.metric}"


def question_of(
    plan: Plan, benchmarks: tuple[BoundBenchmark, ...], *, entry: str | None = None
) -> Question | None:
    """The question of a plan, asked on `entry`, by default the success metric's; None when nothing is to be decided."""
    success = plan.success
    if success is None:
        return None
    benchmark = next(b for b in benchmarks if b.name == (entry or success.benchmark))
    metric = benchmark.metric(success.metric)
    metadata = plan.experiment.metadata
    return Question(
        benchmark=benchmark.name,
        metric=success.metric,
        direction=success.direction,
        task_value=metric.task_value,
        baseline=metadata.baseline,
        minimum_effect=metadata.minimum_effect or 0.0,
        possible=metric.possible,
        reward_range=benchmark.reward_range,
        seed=derive(plan.experiment.base_seed, 0, "verdict"),
    )
