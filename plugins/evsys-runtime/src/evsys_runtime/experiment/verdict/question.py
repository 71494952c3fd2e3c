"""What the experiment asks, from its plan."""

from __future__ import annotations

from evsys_runtime.config.plan import Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.seeds import derive
from evsys_runtime.experiment.verdict.conclude import Question

__all__ = ["question_of"]


def question_of(plan: Plan, benchmarks: tuple[BoundBenchmark, ...]) -> Question | None:
    """The question of a plan; None when nothing is to be decided."""
    success = plan.success
    if success is None:
        return None
    benchmark = next(b for b in benchmarks if b.name == success.benchmark)
    metric = benchmark.metric(success.metric)
    metadata = plan.experiment.metadata
    return Question(
        benchmark=success.benchmark,
        metric=success.metric,
        direction=success.direction,
        task_value=metric.task_value,
        baseline=metadata.baseline,
        minimum_effect=metadata.minimum_effect or 0.0,
        possible=metric.possible,
        reward_range=benchmark.reward_range,
        seed=derive(plan.experiment.base_seed, 0, "verdict"),
    )
