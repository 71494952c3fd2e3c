"""Which numbers of an arm the verdict looks at: its last scoring of the success metric, task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

import attrs

from evsys.types import ArmResult, EvaluationResult
from evsys_record import final_scoring, untrained_scoring
from evsys_record.scorings import value_of

__all__ = [
    "ArmScore",
    "Padding",
    "TaskValue",
    "arm_score",
    "untrained_score",
]

type TaskValue = Callable[[Sequence[float]], float | None]
"""The success metric of one task from the rewards of its scored samples; None where it isn't available."""


@attrs.frozen(kw_only=True)
class Padding:
    """Rewards for the missing samples of `tasks`, so that the metric of each task comes out `highest` or lowest.

    The metric has to be monotonic in the rewards: it is computed with all missing samples at either end of `rewards`.
    """

    tasks: frozenset[str]
    rewards: tuple[float, float]
    highest: bool

    def value(self, rewards: Sequence[float], samples: int, task_value: TaskValue) -> float | None:
        """The metric of a task of which `samples` were drawn and `rewards` are known."""
        missing = samples - len(rewards)
        if missing <= 0:
            return task_value(rewards)
        ends = (task_value((*rewards, *[end] * missing)) for end in self.rewards)
        known = [value for value in ends if value is not None]
        return (max if self.highest else min)(known) if known else None


@attrs.frozen(kw_only=True)
class ArmScore:
    """The success metric of one arm, averaged over its repeats.

    `values` maps a task to its mean over the repeats that scored it, `by_run` has them run by run, `value` is the metric as the evaluations gave it,
    averaged. `is_mean`: the metric is the mean of its values of single tasks. `zero_one`: every reward is 0 or 1. `runs` are the runs that count, `planned`
    how many should; `reasons` says why some don't, `invalid` why nothing may be said at all. `drawn` samples of each task were drawn in
    all runs together, and `samples` of them have a score.
    """

    arm: str
    value: float | None = None
    values: Mapping[str, float] = attrs.field(factory=dict)
    by_run: tuple[Mapping[str, float], ...] = ()
    clusters: Mapping[str, str] = attrs.field(factory=dict)
    copies: Mapping[str, str] = attrs.field(factory=dict)
    runs: tuple[str, ...] = ()
    planned: int = 1
    binary: bool = False
    is_mean: bool = True
    zero_one: bool = False
    drawn: int = 0
    samples: Mapping[str, int] = attrs.field(factory=dict)
    hashes: frozenset[tuple[str | None, str | None]] = frozenset()
    reasons: tuple[str, ...] = ()
    invalid: str | None = None


NOTHING_LEFT = "every scored task is among the training rows"
NOT_BY_TASK = "the success metric is not a mean over tasks, so it isn't known without some of them"

type _Found = Sequence[tuple[ArmResult, EvaluationResult | None]]


def _collect(
    arm: str,
    found: _Found,
    metric: str,
    task_value: TaskValue,
    planned: int,
    *,
    left_out: Set[str],
    padding: Padding | None,
) -> ArmScore:
    scores, reasons, is_mean = _run_scores(found, metric, task_value, left_out=left_out, padding=padding)
    invalid = (_missing_reason(r, e, metric) for r, e in found if e is not None and e.status == "invalid")
    evaluations = [score.evaluation for score in scores]
    samples: Counter[str] = Counter()
    for score in scores:
        samples.update(score.samples)
    means = _task_means(scores)
    single = len(scores) == 1 and evaluations[0].num_samples == 1
    return ArmScore(
        arm=arm,
        value=_mean([score.value for score in scores]) if scores else None,
        values=means,
        by_run=tuple(score.by_task for score in scores),
        clusters=_union([each.clusters for each in evaluations]),
        copies=_union([each.copies for each in evaluations]),
        runs=tuple(score.run_id for score in scores),
        planned=planned,
        binary=single and all(mean in (0.0, 1.0) for mean in means.values()),
        is_mean=is_mean,
        zero_one=all(score.zero_one for score in scores),
        drawn=sum(each.num_samples for each in evaluations),
        samples=samples,
        hashes=frozenset((each.benchmark_hash, each.verifier_hash) for each in evaluations),
        reasons=tuple(reasons),
        invalid=next(invalid, None),
    )


@attrs.frozen(kw_only=True)
class _RunScore:
    """The success metric of one run: its `value`, and the value of each task."""

    run_id: str
    evaluation: EvaluationResult
    value: float
    by_task: Mapping[str, float]

    @property
    def is_mean(self) -> bool:
        """True if the value is the mean over tasks."""
        return bool(self.by_task) and abs(_mean([*self.by_task.values()]) - self.value) <= 1e-9

    @property
    def zero_one(self) -> bool:
        return all(set(rewards) <= {0.0, 1.0} for rewards in self.evaluation.task_rewards.values())

    @property
    def samples(self) -> dict[str, int]:
        return {task: len(rewards) for task, rewards in self.evaluation.task_rewards.items()}

    def without(self, tasks: Set[str]) -> _RunScore:
        return self.with_tasks({task: one for task, one in self.by_task.items() if task not in tasks})

    def with_tasks(self, by_task: Mapping[str, float]) -> _RunScore:
        """The mean over other tasks."""
        value = _mean([*by_task.values()]) if by_task else self.value
        return attrs.evolve(self, by_task=by_task, value=value)


def _run_score(
    result: ArmResult, evaluation: EvaluationResult | None, metric: str, task_value: TaskValue
) -> _RunScore | None:
    value = value_of(evaluation, metric)
    if evaluation is None or value is None:
        return None
    ones = {task: task_value(rewards) for task, rewards in evaluation.task_rewards.items() if rewards}
    by_task = {task: one for task, one in ones.items() if one is not None}
    return _RunScore(run_id=result.run_id, evaluation=evaluation, value=value, by_task=by_task)


def _run_scores(
    found: _Found, metric: str, task_value: TaskValue, *, left_out: Set[str], padding: Padding | None
) -> tuple[list[_RunScore], list[str], bool]:
    """The scores of the runs that have one, why the others have none, and whether the metric is a mean over tasks."""
    is_mean = True
    scores: list[_RunScore] = []
    reasons: list[str] = []
    for result, evaluation in found:
        score = _run_score(result, evaluation, metric, task_value)
        if score is None:
            reasons.append(_missing_reason(result, evaluation, metric))
            continue
        is_mean = is_mean and score.is_mean
        if left_out:
            score = score.without(left_out)
            if not (is_mean and score.by_task):
                reasons.append(f"{result.run_id}: {NOTHING_LEFT if is_mean else NOT_BY_TASK}")
                continue
        if padding is not None:
            score = score.with_tasks(_pad(score.evaluation, score.by_task, padding, left_out, task_value))
        scores.append(score)
    return scores, reasons, is_mean


def _task_means(scores: Sequence[_RunScore]) -> dict[str, float]:
    """The mean over runs of each task."""
    per_task: dict[str, list[float]] = {}
    for score in scores:
        for task, one in score.by_task.items():
            per_task.setdefault(task, []).append(one)
    return {task: _mean(ones) for task, ones in per_task.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _union(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for each in maps for key, value in each.items()}


def _pad(
    evaluation: EvaluationResult,
    known: Mapping[str, float],
    padding: Padding,
    left_out: Set[str],
    task_value: TaskValue,
) -> dict[str, float]:
    """The metric of each task with its missing samples padded; of tasks that have none, that of the padding alone."""
    found = dict(known)
    for task in sorted(padding.tasks - left_out):
        rewards = evaluation.task_rewards.get(task, ())
        value = padding.value(rewards, evaluation.num_samples, task_value)
        if value is not None and len(rewards) < evaluation.num_samples:
            found[task] = value
    return found


def _missing_reason(result: ArmResult, evaluation: EvaluationResult | None, metric: str) -> str:
    if evaluation is not None and evaluation.status != "completed":
        cause = evaluation.failure.message if evaluation.failure else "; ".join(evaluation.warnings)
        return f"{result.run_id}: evaluation {evaluation.status}" + (f" ({cause})" if cause else "")
    if evaluation is not None:
        failed = evaluation.failed_metrics.get(metric)
        return f"{result.run_id}: the success metric {'is not available' if failed is None else f'failed ({failed})'}"
    if result.failure is not None:
        return f"{result.run_id}: {result.failure.message.partition('\n')[0]}"
    told = result.run is not None and result.status in ("skipped", "stopped")
    why = result.run.stop_reason if told and result.run is not None else None
    ended = "no scoring after training" if result.status == "completed" else why or result.status
    return f"{result.run_id}: {ended}"


def arm_score(
    arm: str,
    results: Sequence[ArmResult],
    benchmark: str,
    metric: str,
    task_value: TaskValue,
    *,
    planned: int | None = None,
    left_out: Set[str] = frozenset(),
    padding: Padding | None = None,
) -> ArmScore:
    """The trained score of an arm over its repeats, without the tasks `left_out`: by `final_scoring`, never the
    best one seen.

    With a `padding` missing samples have a reward.
    """
    if not results:
        return ArmScore(arm=arm, planned=planned or 1, reasons=(f"{arm}: it never ran",))
    found = [(result, final_scoring(result, benchmark)) for result in results]
    count = len(results) if planned is None else planned
    return _collect(arm, found, metric, task_value, count, left_out=left_out, padding=padding)


def untrained_score(
    results: Sequence[ArmResult],
    benchmark: str,
    metric: str,
    task_value: TaskValue,
    *,
    left_out: Set[str] = frozenset(),
    padding: Padding | None = None,
) -> ArmScore:
    """The score of an arm's starting weights. Repeats that share one scoring count once."""
    found = [(result, untrained_scoring(result, benchmark)) for result in results]
    scorings = {
        id(evaluation): (result, evaluation) for result, evaluation in found if evaluation is not None
    }
    rewards = [evaluation.task_rewards for _, evaluation in scorings.values()]
    if rewards and all(other == rewards[0] for other in rewards[1:]):
        found = [next(iter(scorings.values()))]
    return _collect("base_model", found, metric, task_value, len(found), left_out=left_out, padding=padding)
