"""Endpoints: two arms, or two runs, task by task."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np

from evsys.types import EvaluationResult
from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.service import experiment_row
from evsys_record import Experiment, Run, final_scoring, is_proof
from evsys_record.encoding import as_tree
from evsys_runtime.config.plan import MIN_TASKS
from evsys_runtime.experiment.verdict.comparison import cluster_labels
from evsys_stats.claims import claim_p
from evsys_stats.paired import Paired, paired_difference

__all__ = ["endpoints"]

endpoints = Endpoints()

type Change = Literal["won", "lost", "changed", "same"]


@attrs.frozen(kw_only=True)
class ComparisonQuestion:
    """Which two sides, each `EXPERIMENT/RUN` or `EXPERIMENT/ARM`, on which benchmark entry.

    Args:
        benchmark: by default the first that both were scored on.
        margin: for the test that the two are equal; none without it.
    """

    left: str
    right: str
    benchmark: str | None = None
    margin: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.gt(0))
    )


@attrs.frozen(kw_only=True)
class TaskQuestion:
    """Which task of a comparison."""

    left: str
    right: str
    benchmark: str
    task: str


@attrs.frozen(kw_only=True)
class ComparedTask:
    """A task with the mean reward of each side over runs and samples. `changed`: the same reward for other answers."""

    task: str
    left: float
    right: float
    change: Change


@attrs.frozen(kw_only=True)
class ComparisonAnswer:
    """Two sides on the tasks that both were scored on.

    `effect` is right minus left, with its 95 % interval; `equal_p` tests equality at the margin asked for.
    `problem` says why the sides can't be compared, or why there is no interval.
    """

    left: str
    right: str
    benchmark: str | None
    benchmarks: tuple[str, ...]
    margin: float | None
    lower_is_better: bool = False
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    method: str | None = None
    equal_p: float | None = None
    only_left: int = 0
    only_right: int = 0
    tasks: tuple[ComparedTask, ...] = ()
    problem: str | None = None


@attrs.frozen(kw_only=True)
class TaskAnswer:
    """The rollouts of a task on each side: `run`, `step` and the recorded `rollout`."""

    left: tuple[Mapping[str, Any], ...]
    right: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class _Scored:
    """A run with its evaluation of a benchmark entry that counts."""

    run: Run
    evaluation: EvaluationResult

    @property
    def means(self) -> dict[str, float]:
        return {
            task: sum(rewards) / len(rewards)
            for task, rewards in self.evaluation.task_rewards.items()
            if rewards
        }

    @property
    def phase(self) -> str:
        return "test" if self.evaluation.split == "test" else "validation"


@endpoints.get("/projects/{project}/comparison")
async def comparison(call: Call, query: ComparisonQuestion) -> ComparisonAnswer:
    """Two arms, or two runs, on the tasks that both were scored on."""
    sides = [await _runs(call, name) for name in (query.left, query.right)]
    return await asyncio.to_thread(_compare, query, sides)


@endpoints.get("/projects/{project}/comparison/task")
async def compared_task(call: Call, query: TaskQuestion) -> TaskAnswer:
    """The rollouts of one task on both sides."""
    sides = [await _runs(call, name) for name in (query.left, query.right)]

    def read() -> TaskAnswer:
        left, right = (tuple(_rollouts_of(runs, query)) for runs in sides)
        return TaskAnswer(left=left, right=right)

    return await asyncio.to_thread(read)


async def _runs(call: Call, name: str) -> list[Run]:
    """The runs that `EXPERIMENT/RUN` or `EXPERIMENT/ARM` names; all of an experiment with a single arm."""
    owner, _, named = name.partition("/")
    await call.service.read(lambda connection: experiment_row(connection, call["project"], owner))
    folder: Path = await asyncio.to_thread(call.service.records.experiment, call["project"], owner)

    def find() -> list[Run]:
        runs = list(Experiment(folder).runs())
        found = [run for run in runs if run.id == named] or [
            run for run in runs if run.facts.get("arm") == named
        ]
        if not named and len({run.facts.get("arm") for run in runs}) == 1:
            found = runs
        if not found:
            known = (
                ", ".join(dict.fromkeys(str(run.facts.get("arm") or run.id) for run in runs)) or "none yet"
            )
            raise RefusedError(404, f"{owner} has no run or arm {named!r}", hint=f"its arms: {known}")
        return found

    return await asyncio.to_thread(find)


def _compare(query: ComparisonQuestion, sides: Sequence[Sequence[Run]]) -> ComparisonAnswer:
    scored = [_final_evaluations(runs) for runs in sides]
    common = tuple(name for name in scored[0] if name in scored[1])
    benchmark = query.benchmark if query.benchmark in common else next(iter(common), None)
    answer = ComparisonAnswer(
        left=query.left, right=query.right, margin=query.margin, benchmark=benchmark, benchmarks=common
    )
    if benchmark is None:
        return attrs.evolve(answer, problem="nothing was scored on both sides")
    left, right = (each[benchmark] for each in scored)
    hashes = {(one.evaluation.benchmark_hash, one.evaluation.verifier_hash) for one in (*left, *right)}
    if len(hashes) > 1:
        return attrs.evolve(answer, problem="the tasks or the verifier changed between the two")
    return _compare_tasks(answer, left, right)


def _compare_tasks(
    answer: ComparisonAnswer, left: Sequence[_Scored], right: Sequence[_Scored]
) -> ComparisonAnswer:
    metric = next(iter(right[0].evaluation.metrics.values()), None)
    lower = metric is not None and metric.direction == "min"
    before, after = _mean_over_runs(left), _mean_over_runs(right)
    tasks = sorted(before.keys() & after.keys())
    answers = [_answers(scored, set(tasks)) for scored in (left, right)]
    answer = attrs.evolve(
        answer,
        lower_is_better=lower,
        only_left=len(before.keys() - after.keys()),
        only_right=len(after.keys() - before.keys()),
        tasks=tuple(
            ComparedTask(
                task=task,
                left=before[task],
                right=after[task],
                change=_change(
                    before[task], after[task], lower, differ=answers[0].get(task) != answers[1].get(task)
                ),
            )
            for task in tasks
        ),
    )
    if len(tasks) < MIN_TASKS:
        return attrs.evolve(
            answer, problem=f"{len(tasks)} tasks were scored on both sides: an interval needs {MIN_TASKS}"
        )
    clusters = right[0].evaluation.clusters
    paired = paired_difference(
        np.array([after[task] for task in tasks]),
        np.array([before[task] for task in tasks]),
        cluster_labels(clusters, tasks),
        binary=all(value in {0.0, 1.0} for values in (before, after) for value in values.values()),
    )
    return attrs.evolve(
        answer,
        effect=paired.effect,
        low=paired.low,
        high=paired.high,
        p_value=paired.p_value,
        method=paired.method,
        equal_p=_equal_p(paired, answer.margin),
    )


def _equal_p(paired: Paired, margin: float | None) -> float | None:
    if margin is None:
        return None
    return 1.0 if paired.p_at is None else claim_p("equal", margin, paired)


def _final_evaluations(runs: Iterable[Run]) -> dict[str, list[_Scored]]:
    """By benchmark entry each run's evaluation that its conclusion rests on: that of the selected checkpoint.

    Of a run that hasn't ended it is the last complete one of its own weights.
    """
    found: dict[str, list[_Scored]] = {}
    for run in runs:
        result = run.result
        last = {
            evaluation.benchmark: evaluation
            for evaluation in run.evaluations()
            if evaluation.status == "completed"
            and evaluation.model is None
            and not is_proof(evaluation.benchmark)
        }
        for name, evaluation in last.items():
            final = None if result is None else final_scoring(result, name)
            counts = evaluation if final is None or final.status != "completed" else final
            found.setdefault(name, []).append(_Scored(run=run, evaluation=counts))
    return found


def _mean_over_runs(scored: Sequence[_Scored]) -> dict[str, float]:
    """The mean reward of each task that every run was scored on."""
    means = [each.means for each in scored]
    tasks = set(means[0]).intersection(*means[1:])
    return {task: sum(each[task] for each in means) / len(means) for task in tasks}


def _change(before: float, after: float, lower: bool, *, differ: bool) -> Change:
    if math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-12):
        return "changed" if differ else "same"
    return "won" if (after > before) != lower else "lost"


def _answers(scored: Sequence[_Scored], tasks: set[str]) -> dict[str, list[str]]:
    """The answers to each task, in order, for whether they changed."""
    found: dict[str, list[str]] = {}
    for _, line in _recorded_values(scored):
        if line.rollout.task_id in tasks:
            found.setdefault(line.rollout.task_id, []).append(line.rollout.output or "")
    return {task: sorted(answers) for task, answers in found.items()}


def _recorded_values(scored: Sequence[_Scored]) -> Iterator[tuple[Run, Any]]:
    """The rollouts of some evaluations."""
    for each in scored:
        for line in each.run.rollouts(each.phase):
            if (line.benchmark, line.step) == (each.evaluation.benchmark, each.evaluation.step):
                yield each.run, line


def _rollouts_of(runs: Sequence[Run], query: TaskQuestion) -> Iterator[Mapping[str, Any]]:
    scored = _final_evaluations(runs).get(query.benchmark, ())
    for run, line in _recorded_values(scored):
        if line.rollout.task_id == query.task:
            yield {"run": run.id, "step": line.step, "rollout": as_tree(line.rollout)}
