"""Results of simulated experiments, made fast enough that thousands of them can be concluded."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evsys.types import ArmResult, EvaluationResult, MetricValue

__all__ = ["LEAST_T", "may_win", "scored", "trained"]

LEAST_T = 1.5
"""No test of 40 tasks or more finds a difference of fewer standard errors significant at 0.05: Student's t needs at least 1.96."""


def may_win(differences: NDArray[np.float64]) -> bool:
    """Whether a mean difference is large enough that asking for a verdict is worth the time.

    Args:
        differences: of each task, [n], with n at least 40; positive is better, and the mean must exceed 0.
    """
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()) > LEAST_T * error


def scored(step: int, rewards: ArrayLike, clusters: ArrayLike | None = None) -> EvaluationResult:
    """A scoring of tasks with these rewards, [n] or [n, k]; NaN is a sample without a score."""
    values = np.asarray(rewards, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    count = values.shape[1]
    names = [f"t{i:04d}" for i in range(len(values))]
    rows = dict(zip(names, map(tuple, values.tolist()), strict=True))
    lost = int(np.isnan(values).sum())
    if lost:
        rows = {task: tuple(r for r in row if r == r) for task, row in rows.items()}
        rows = {task: row for task, row in rows.items() if row}
    mean = float(np.nanmean(values)) if not lost else float(np.mean([np.mean(row) for row in rows.values()]))
    labels = None if clusters is None else np.asarray(clusters).tolist()
    return EvaluationResult(
        benchmark="val",
        split="val",
        step=step,
        status="completed",
        metrics={"mean_reward": MetricValue(value=mean)},
        tasks=len(values),
        num_samples=count,
        scored=len(values),
        no_score=lost,
        task_rewards=rows,
        clusters={} if labels is None else dict(zip(names, map(str, labels), strict=True)),
        benchmark_hash="b",
        verifier_hash="v",
    )


def trained(
    name: str,
    before: ArrayLike | None,
    after: ArrayLike,
    repeat: int = 0,
    clusters: ArrayLike | None = None,
    *,
    purpose: str = "candidate",
) -> ArmResult:
    """A run that was scored before its training, unless `before` is None, and after it."""
    first = () if before is None else (scored(0, before, clusters),)
    return ArmResult(
        run_id=f"{name}-s{repeat}",
        arm=name,
        repeat=repeat,
        seed=repeat,
        status="completed",
        identity=name,
        purpose=purpose,
        evaluations=(*first, scored(10, after, clusters)),
    )
