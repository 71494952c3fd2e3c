"""The question of an experiment, from its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from evsys.types import Claim, NoiseFloor, RunDeviation
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import ALPHA, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.state.seeds import derive
from evsys_runtime.experiment.verdict.scores import TaskValue
from evsys_stats.claims import least_win
from evsys_stats.ranges import Range

__all__ = ["Question", "question_of"]


@attrs.frozen(kw_only=True)
class Question:
    """The question of an experiment, fixed before the first step.

    `task_value` computes the success metric on one task, `possible` computes its range from that of rewards (None
    if unknown); `seed` is the bootstrap's. Tasks `left_out` don't count. `deviation` is that between runs of
    similar recipes on record, if known. `noise` is that between equal runs of the baseline, if known. `claim` with
    `margin` is the claim about each arm, or of the arm `contrast` alone; `level` is the level of significance that
    this experiment may spend, `next_level` the level of the next look at the question, None for the same.
    """

    benchmark: str
    metric: str
    direction: Literal["max", "min"]
    task_value: TaskValue
    baseline: str = BASE_MODEL
    claim: Claim = "better"
    margin: float = 0.0
    contrast: str | None = None
    level: float = ALPHA
    next_level: float | None = None
    possible: Callable[[Range | None], Range | None] = lambda _rewards: None
    reward_range: Range | None = None
    seed: int = 0
    left_out: frozenset[str] = frozenset()
    noise: NoiseFloor | None = None
    deviation: RunDeviation | None = None

    @property
    def minimum_effect(self) -> float:
        """The effect that a win or a loss has to exceed."""
        return least_win(self.claim, self.margin)

    @property
    def coming_level(self) -> float:
        """The level of the next look, which what would settle the question has to reach."""
        return self.level if self.next_level is None else self.next_level

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
        claim=metadata.claim,
        margin=metadata.claimed_margin,
        contrast=None if metadata.contrast is None else metadata.contrast.arm,
        possible=metric.possible,
        reward_range=benchmark.reward_range,
        seed=derive(plan.experiment.base_seed, 0, "verdict"),
    )
