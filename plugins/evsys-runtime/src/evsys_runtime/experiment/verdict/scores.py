"""Which numbers of an arm the verdict looks at: its last scoring of the success metric, task by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from evsys.types import ArmResult, EvaluationResult

__all__ = ["ArmScore", "TaskValue", "arm_score", "untrained_score"]

type TaskValue = Callable[[Sequence[float]], float | None]
"""The success metric of one task from the rewards of its scored samples; None where it isn't available."""


@attrs.frozen(kw_only=True)
class ArmScore:
    """The success metric of one arm, averaged over its repeats.

    `values` maps a task to its mean over the repeats that scored it, `value` is the metric as the evaluations gave it,
    averaged; `reasons` says why nothing or less was scored.
    """

    arm: str
    value: float | None
    values: Mapping[str, float]
    clusters: Mapping[str, str]
    repeats: int
    binary: bool
    hashes: frozenset[tuple[str | None, str | None]]
    no_score_share: float
    reasons: tuple[str, ...] = ()


def _final(result: ArmResult, benchmark: str) -> EvaluationResult | None:
    scored = [e for e in result.evaluations if e.benchmark == benchmark and e.model is None and e.step > 0]
    return max(scored, key=lambda e: e.step, default=None)


def _untrained(result: ArmResult, benchmark: str) -> EvaluationResult | None:
    return next(
        (e for e in result.evaluations if e.benchmark == benchmark and e.model is None and e.step == 0), None
    )


def _collect(
    arm: str, found: Sequence[tuple[ArmResult, EvaluationResult | None]], metric: str, task_value: TaskValue
) -> ArmScore:
    per_task: dict[str, list[float]] = {}
    clusters: dict[str, str] = {}
    values: list[float] = []
    reasons: list[str] = []
    hashes: set[tuple[str | None, str | None]] = set()
    scored = missing = 0
    single = True
    for result, evaluation in found:
        if evaluation is None or evaluation.status != "completed":
            reasons.append(_why(result, evaluation))
            continue
        value = evaluation.metrics.get(metric)
        if value is None or value.value is None:
            reasons.append(f"{result.run_id}: {metric} is not available")
            continue
        values.append(value.value)
        scored, missing = scored + evaluation.scored, missing + evaluation.no_score
        hashes.add((evaluation.benchmark_hash, evaluation.verifier_hash))
        clusters.update(evaluation.clusters)
        single = single and evaluation.num_samples == 1
        for task, rewards in evaluation.task_rewards.items():
            one = task_value(rewards) if rewards else None
            if one is not None:
                per_task.setdefault(task, []).append(one)
    means = {task: sum(ones) / len(ones) for task, ones in per_task.items()}
    binary = single and len(values) == 1 and all(mean in (0.0, 1.0) for mean in means.values())
    return ArmScore(
        arm=arm,
        value=sum(values) / len(values) if values else None,
        values=means,
        clusters=clusters,
        repeats=len(values),
        binary=binary,
        hashes=frozenset(hashes),
        no_score_share=missing / (scored + missing) if scored + missing else 0.0,
        reasons=tuple(reasons),
    )


def _why(result: ArmResult, evaluation: EvaluationResult | None) -> str:
    if evaluation is not None:
        cause = evaluation.failure.message if evaluation.failure else "; ".join(evaluation.warnings)
        return f"{result.run_id}: evaluation {evaluation.status}" + (f" ({cause})" if cause else "")
    if result.failure is not None:
        return f"{result.run_id}: {result.failure.message.partition('\n')[0]}"
    return f"{result.run_id}: no scoring after training"


def arm_score(
    arm: str, results: Sequence[ArmResult], benchmark: str, metric: str, task_value: TaskValue
) -> ArmScore:
    """The trained score of an arm over its repeats; its last scoring counts, fixed in advance, never the best one."""
    return _collect(arm, [(r, _final(r, benchmark)) for r in results], metric, task_value)


def untrained_score(
    results: Sequence[ArmResult], benchmark: str, metric: str, task_value: TaskValue
) -> ArmScore:
    """The score of an arm's starting weights. Repeats share one scoring, so it counts once."""
    found: dict[tuple[tuple[str, tuple[float, ...]], ...], tuple[ArmResult, EvaluationResult | None]] = {}
    missing: list[tuple[ArmResult, EvaluationResult | None]] = []
    for result in results:
        evaluation = _untrained(result, benchmark)
        if evaluation is None:
            missing.append((result, None))
        else:
            found.setdefault(tuple(sorted(evaluation.task_rewards.items())), (result, evaluation))
    return _collect("base_model", list(found.values()) or missing[:1], metric, task_value)
