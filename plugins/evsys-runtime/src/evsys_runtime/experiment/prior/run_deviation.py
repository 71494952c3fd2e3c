"""The run-to-run deviation that earlier experiments on record show, for recipes like those of an experiment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.errors import StoreError
from evsys.types import EvaluationResult, RecipeRuns, RunDeviation
from evsys_record import final_scoring
from evsys_record.marks import disqualifying, marks_of
from evsys_runtime.experiment.insight.evidence import Evidence, PastArm
from evsys_runtime.experiment.lineage.experiments import Earlier
from evsys_runtime.experiment.state.resolved_tree import resolved_runs
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.run_deviation import recipe_runs, run_deviation

if TYPE_CHECKING:
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.experiment.state.session import Session

__all__ = ["deviation_on_record", "is_reliable", "known_deviation", "recipes_of"]


def known_deviation(session: Session, question: Question, earlier: Earlier) -> RunDeviation | None:
    """How far runs of similar recipes differ; None where too few are on record. Blocking.

    Args:
        session: whose experiment it is.
        question: what it asks.
        earlier: the index of the experiments on record.
    """
    benchmark = next(b for b in session.benchmarks if b.name == question.benchmark)
    if benchmark.benchmark_hash is None:
        return None
    # A chain's runs also differ by what its earlier stages left, which other experiments can't tell.
    arms = [arm for arm in session.plan.arms if arm.weights_of is None and arm.stage is None]
    index = earlier() if arms else None
    if index is None:
        return None
    configs = list(resolved_runs(session.plan, arms).values())
    own = session.record.experiment_id
    try:
        return deviation_on_record(Evidence(index), configs, question, benchmark, apart_from=own)
    except (StoreError, sqlite3.Error) as error:
        session.warnings.append(f"the runs of earlier experiments can't be looked up: {error}")
        return None


def deviation_on_record(
    evidence: Evidence,
    configs: Sequence[Mapping[str, Any]],
    question: Question,
    benchmark: BoundBenchmark,
    *,
    apart_from: str | None = None,
) -> RunDeviation | None:
    """How far runs of recipes similar to some differ; None where too few are on record.

    Similar recipes train the same model by the same algorithm on the same backend and were scored by the same
    metric on the same tasks with as many samples, in reliable experiments.

    Args:
        evidence: what is on record.
        configs: the resolved runs.
        question: what is asked.
        benchmark: the entry that decides.
        apart_from: an experiment that doesn't count.
    """
    recipes = [
        found
        for arm in evidence.arms_scored_on(benchmark.benchmark_hash)
        if is_reliable(arm)
        and arm.experiment.experiment_id != apart_from
        and any(arm.trained_as(config) for config in configs)
        for found in recipes_of(arm, evidence, question, benchmark)
    ]
    return run_deviation(question.name, recipes)


def is_reliable(arm: PastArm) -> bool:
    """Whether the numbers of its experiment count as evidence: it is concluded, since marks are known only then, and isn't retracted, invalid, dry,
    edited, leaked or simulated, and doesn't rest on retracted ones.
    """
    past = arm.experiment
    if past.verdict in (None, "INVALID"):
        return False
    return not disqualifying(marks_of(past))


def recipes_of(
    arm: PastArm, evidence: Evidence, question: Question, benchmark: BoundBenchmark
) -> Iterator[RecipeRuns]:
    """The scored runs of an arm on the tasks that all of them have a score of, if there are two."""
    values: dict[str, Mapping[str, float]] = {}
    for entry in arm.benchmarks:
        if (entry.get("hash"), entry.get("num_samples", 1)) != (
            benchmark.benchmark_hash,
            benchmark.num_samples,
        ):
            continue
        for run in arm.runs:
            if run.reused_from is not None:  # it counts where it was made
                continue
            result = None if run.folder is None else evidence.result(arm.directory, run.folder)
            scoring = None if result is None else final_scoring(result, str(entry["name"]))
            found = None if scoring is None else _task_values(scoring, question, benchmark)
            if found:
                values.setdefault(run.run_id, found)
    common = sorted(set.intersection(*map(set, values.values()))) if len(values) > 1 else []
    if len(common) > 1:
        scores = np.array([[run[task] for task in common] for run in values.values()])
        yield recipe_runs(arm.experiment.experiment_id, arm.name, list(values), scores)


def _task_values(
    scoring: EvaluationResult, question: Question, benchmark: BoundBenchmark
) -> dict[str, Any] | None:
    """The success metric of each task; None for a scoring that isn't of these tasks, or wasn't completed."""
    if scoring.status != "completed" or scoring.benchmark_hash != benchmark.benchmark_hash:
        return None
    made = {task: question.task_value(rewards) for task, rewards in scoring.task_rewards.items() if rewards}
    return {task: value for task, value in made.items() if value is not None}
