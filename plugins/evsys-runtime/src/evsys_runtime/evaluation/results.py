"""From the rollouts of a scoring to its result: scores, counts, and when an evaluation says nothing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PluginContractError
from evsys.types import EvaluationResult, Failure, MetricValue, NoScore, Rollout, Score, Usage
from evsys_runtime.evaluation.cache_marks import is_cached
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.metrics import Scores, breakdown, rewards_by_task, score

if TYPE_CHECKING:
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark

__all__ = [
    "MAX_NO_SCORE",
    "failed_result",
    "in_task_order",
    "missing_result",
    "recorded_values",
    "require_each_once",
    "rollout_usage",
    "scored_result",
    "without_cost",
]

MAX_NO_SCORE = 0.05
"""Above this share of rollouts without a score an evaluation says nothing."""


def scored_result(
    benchmark: BoundBenchmark, step: int, rollouts: Sequence[Rollout], seeds: Callable[..., int]
) -> EvaluationResult:
    """The result of a whole evaluation: completed, or invalid for want of scores. A metric that fails has no value;
    the others hold.
    """
    by_task = _by_task(benchmark, rollouts)
    scores = Scores(
        rewards=rewards_by_task(by_task),
        rollouts=by_task,
        clusters=benchmark.clusters,
        reward_range=benchmark.reward_range,
    )
    seed = seeds(f"interval/{benchmark.name}", 0)
    metrics, failures = score(benchmark.metrics, scores, seed=seed)
    invalid = _invalid(rollouts)
    return _result_of(
        benchmark,
        step,
        status="invalid" if invalid else "completed",
        failure=invalid or (failure_of(failures[0]) if failures else None),
        metrics=metrics,
        task_rewards=scores.rewards,
        clusters=benchmark.clusters,
        copies=benchmark.copies,
        breakdown=breakdown(benchmark.metrics, scores, benchmark.labels, seed=seed),
        warnings=tuple(_warnings(benchmark, metrics)),
        **_counts(rollouts),
    )


def failed_result(
    benchmark: BoundBenchmark, step: int, error: BaseException, rollouts: Sequence[Rollout]
) -> EvaluationResult:
    """A scoring that couldn't be carried out; it counts the rollouts that it came to."""
    return _result_of(benchmark, step, status="failed", failure=failure_of(error), **_counts(rollouts))


def missing_result(
    benchmark: BoundBenchmark, step: int, reason: str, rollouts: Sequence[Rollout] = ()
) -> EvaluationResult:
    """A scoring that should have happened and didn't, or was cut off; it counts the rollouts that it came to."""
    failure = Failure(boundary="evaluation", message=reason, error_type="Missing")
    return _result_of(benchmark, step, status="missing", failure=failure, **_counts(rollouts))


def in_task_order(result: EvaluationResult, benchmark: BoundBenchmark) -> EvaluationResult:
    """A result read from a file, with its tasks in the benchmark's order, which sums depend on in their last bits."""
    ids = [task.task_id for task in benchmark.tasks]

    def ordered[T](by_task: Mapping[str, T]) -> dict[str, T]:
        return {task: by_task[task] for task in ids if task in by_task}

    return attrs.evolve(
        result,
        task_rewards=ordered(result.task_rewards),
        clusters=ordered(result.clusters),
        copies=ordered(result.copies),
    )


def without_cost(result: EvaluationResult) -> EvaluationResult:
    """A result as one has it that another made, and paid for."""
    return attrs.evolve(result, usage=Usage(), judged=Usage(), seconds=0.0)


def rollout_usage(rollout: Rollout) -> Usage:
    """The usage of a rollout and its verdict, unless it was paid for before."""
    return Usage() if is_cached(rollout) else rollout.usage + (rollout.score.usage or Usage())


def require_each_once(benchmark: BoundBenchmark, rollouts: Sequence[Rollout]) -> None:
    """Hold the engine to its contract: every task's every sample exactly once."""
    seen = Counter((rollout.task_id, rollout.sample_index) for rollout in rollouts)
    wanted = {(task.task_id, sample) for task in benchmark.tasks for sample in range(benchmark.num_samples)}
    odd = sorted(key for key in wanted | seen.keys() if seen[key] != (key in wanted))
    if odd:
        task, sample = odd[0]
        raise PluginContractError(
            f"the engine gave {len(rollouts)} rollouts instead of {len(wanted)}: task {task!r} sample {sample} came "
            f"{seen[task, sample]} times"
        )


def recorded_values(result: EvaluationResult, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """A scoring as a line of metrics, with the mean of each component; a metric that isn't available is left out."""
    curve = result.curve
    values = {f"{curve}/{name}": value.value for name, value in result.metrics.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    return {
        **numbers,
        **{f"{curve}/components/{name}": mean for name, mean in _components(rollouts).items()},
        f"{curve}/scored": float(result.scored),
        f"{curve}/no_score": float(result.no_score),
        f"{curve}/seconds": result.seconds,
    }


def _result_of(benchmark: BoundBenchmark, step: int, **fields: Any) -> EvaluationResult:
    return EvaluationResult(
        benchmark=benchmark.name,
        split=benchmark.split,
        step=step,
        tasks=len(benchmark.tasks),
        num_samples=benchmark.num_samples,
        benchmark_hash=benchmark.benchmark_hash,
        verifier_hash=benchmark.verifier_hash,
        **fields,
    )


def _counts(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """How many rollouts have a score and how many don't, and what those used that weren't paid for before."""
    without = sum(isinstance(rollout.score, NoScore) for rollout in rollouts)
    usage, judged = Usage(), Usage()
    made = [rollout for rollout in rollouts if not is_cached(rollout)]
    for rollout in made:
        usage = usage + rollout.usage
        judged = judged + (rollout.score.usage or Usage())
    return {
        "scored": len(rollouts) - without,
        "no_score": without,
        "cached": len(rollouts) - len(made),
        "usage": usage,
        "judged": judged,
    }


def _by_task(benchmark: BoundBenchmark, rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """Rollouts by task, in the benchmark's order, regardless of when they finished."""
    by_task: dict[str, list[Rollout]] = {task.task_id: [] for task in benchmark.tasks}
    for rollout in sorted(rollouts, key=lambda rollout: rollout.sample_index):
        by_task[rollout.task_id].append(rollout)
    return by_task


_SPAN = re.compile(r"\b\d[\d,]* s\b")
"""A time in a reason, such as that for which a service has failed: it makes no other reason of it."""


_SHORTEST_QUOTE = 16
"""Characters that a reason has in common with an answer when it quotes it."""

_SHORTEST_ANSWER = 6
_QUOTE = "[answer]"
_LONGEST_REASON = 2000


def _most_common(absent: Sequence[tuple[Rollout, NoScore]], most: int) -> list[tuple[int, str, str]]:
    """The reasons that most scores are missing for, each with its count, its boundary and its last wording.

    Quotes of an answer are left out: it would make each of them another one, and readers of a conclusion
    didn't ask for the words of a model.
    """
    counts: Counter[tuple[str, str]] = Counter()
    wordings: dict[tuple[str, str], str] = {}
    for rollout, missing in absent:
        reason = _without_quotes(missing.reason, rollout)
        key = missing.boundary or "unknown", _SPAN.sub("", reason)
        counts[key] += 1
        wordings[key] = reason
    return [(count, key[0], wordings[key]) for key, count in counts.most_common(most)]


def _without_quotes(reason: str, rollout: Rollout) -> str:
    """A reason with `[answer]` in place of what it quotes of the model."""
    said = [message for message in rollout.messages if message.role == "assistant"]
    texts = {
        rollout.output,
        *(text for message in said for text in (message.content, message.reasoning or "")),
    }
    reason = reason[:_LONGEST_REASON]
    for short in sorted((text.strip() for text in texts), key=len):
        if _SHORTEST_ANSWER <= len(short) < _SHORTEST_QUOTE:
            reason = reason.replace(short, _QUOTE)
    parts: list[str] = []
    end = 0
    for start in range(len(reason) - _SHORTEST_QUOTE + 1):
        piece = reason[start : start + _SHORTEST_QUOTE]
        if any(piece in text for text in texts):
            if start > end or not parts:
                parts += [reason[end:start], _QUOTE]
            end = start + _SHORTEST_QUOTE
    return "".join((*parts, reason[end:]))


def _invalid(rollouts: Sequence[Rollout]) -> Failure | None:
    """Why an evaluation says nothing: too many of its rollouts have no score."""
    absent = [(rollout, rollout.score) for rollout in rollouts if isinstance(rollout.score, NoScore)]
    if len(absent) <= MAX_NO_SCORE * len(rollouts):
        return None
    told = "; ".join(f"{count} x {where}: {reason}" for count, where, reason in _most_common(absent, 3))
    return Failure(
        boundary=absent[0][1].boundary or "evaluation",
        message=f"{len(absent)} of {len(rollouts)} rollouts have no score, more than {MAX_NO_SCORE:.0%} ({told})",
        error_type="NoScore",
    )


def _warnings(benchmark: BoundBenchmark, metrics: Mapping[str, MetricValue]) -> Iterable[str]:
    yield from benchmark.warnings
    for metric in benchmark.metrics:
        if not metric.declared:
            yield f"metric {metric.name!r} declares no direction; more is taken to be better"
        excluded = metrics[metric.name].excluded
        if excluded:
            lacking = "of what it measures" if metric.over_rollouts else "of scored samples"
            yield f"{metric.name} leaves out {excluded} of {len(benchmark.tasks)} tasks for want {lacking}"


def _components(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The mean of each named part of the scores, over the rollouts whose score has it."""
    parts: dict[str, list[float]] = {}
    for rollout in sorted(rollouts, key=lambda rollout: (rollout.task_id, rollout.sample_index)):
        if isinstance(rollout.score, Score):
            for name, value in rollout.score.components.items():
                parts.setdefault(name, []).append(float(value))
    return {name: math.fsum(values) / len(values) for name, values in sorted(parts.items())}
