"""The checkpoint of a run that counts, with what it was selected among and how much worse the last one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from evsys.types import EvaluationResult, RunResult, SelectedCheckpoint
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.arm.best_checkpoint import BestCheckpoint
from evsys_runtime.experiment.verdict.comparison import DRAWS
from evsys_stats.paired import Pair, paired_differences

__all__ = ["select_checkpoint"]


def select_checkpoint(
    best: BestCheckpoint, trained: RunResult, evaluator: Evaluator, directory: Path
) -> SelectedCheckpoint | None:
    """Select the best of a run's checkpoints scored; None if none is.

    Args:
        best: followed the run, and knows its checkpoints and their scores.
        trained: what training came to.
        evaluator: has the run's scorings.
        directory: the run's folder.
    """
    chosen, looks = best.selected, best.looks
    if chosen is None or best.entry is None:
        return None
    scorings = {e.step: e for e in evaluator.results if e.benchmark == best.entry and e.model is None}
    p_value = None
    if chosen.step != trained.steps and trained.steps in looks:
        metric = next(b for b in evaluator.benchmarks if b.name == best.entry).metric(best.metric)
        tasks = None if best.tasks is None else best.tasks[1]
        pair = _pair(scorings[chosen.step], scorings[trained.steps], metric.task_value, tasks)
        p_value = None if pair is None else min(1.0, _p_value(pair, best.sign) * (len(looks) - 1))
    return SelectedCheckpoint(
        step=chosen.step,
        checkpoint=best.place_of(chosen, directory),
        by=f"{best.entry}.{best.metric}",
        score=looks[chosen.step],
        last_step=trained.steps,
        last_score=looks.get(trained.steps),
        looks=len(looks),
        p_value=p_value,
        last_is_worse=p_value is not None and p_value <= ALPHA,
    )


def _pair(
    chosen: EvaluationResult,
    last: EvaluationResult,
    task_value: Callable[[Sequence[float]], float | None],
    tasks: frozenset[str] | None,
) -> Pair | None:
    """Both checkpoints task by task; None if no task has a value of both, as with a metric of whole rollouts."""
    values = [
        (one, other, chosen.clusters.get(task, f"task {task}"))
        for task, rewards in chosen.task_rewards.items()
        if (tasks is None or task in tasks)
        and (one := task_value(rewards)) is not None
        and (other := task_value(last.task_rewards.get(task, ()))) is not None
    ]
    if not values:
        return None
    above, below, clusters = zip(*values, strict=True)
    labels = {name: index for index, name in enumerate(dict.fromkeys(clusters))}
    return Pair(
        arm=np.array(above),
        baseline=np.array(below),
        clusters=np.array([labels[name] for name in clusters]) if chosen.clusters else None,
    )


def _p_value(pair: Pair, sign: float) -> float:
    (found,) = paired_differences([pair], sign=sign, binary=False, draws=DRAWS, seed=0)
    return found.p_value
