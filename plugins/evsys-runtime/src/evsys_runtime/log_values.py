"""The logged values of scores, runs and verdicts: one choice of names and numbers for callbacks and log stores."""

from __future__ import annotations

from typing import Any

from evsys.types import ArmResult, EvaluationResult, ExperimentResult
from evsys_record.marks import concluded_labels

__all__ = ["effects_of", "end_of", "scores_of", "verdict_of"]


def scores_of(evaluation: EvaluationResult) -> tuple[str, dict[str, float]]:
    """The group that a scoring belongs to, and its values: each metric, with `/low` and `/high` of its interval."""
    values: dict[str, float] = {}
    for name, metric in evaluation.metrics.items():
        found = {name: metric.value, f"{name}/low": metric.low, f"{name}/high": metric.high}
        values |= {key: value for key, value in found.items() if value is not None}
    return evaluation.curve, values


def end_of(result: ArmResult) -> dict[str, str | float]:
    """How a run ended."""
    run, failure = result.run, result.failure
    return _package_versions(
        status=result.status,
        seconds=result.seconds,
        steps=None if run is None else run.steps,
        stop_reason=None if run is None else run.stop_reason,
        trained_tokens=result.usage.trained_tokens,
        cost_usd=result.usage.cost_usd,
        failure=None if failure is None else failure.message,
        warnings="\n".join(result.warnings) or None,
    )


def effects_of(result: ExperimentResult) -> dict[str, float]:
    """The numbers of each arm's comparison, by `<arm>/<number>`."""
    return {
        f"{comparison.arm}/{key}": value
        for comparison in result.conclusion.comparisons
        for key in ("before", "after", "effect", "low", "high")
        if (value := getattr(comparison, key)) is not None
    }


def verdict_of(result: ExperimentResult) -> dict[str, str | float]:
    """The conclusion of an experiment, in words, with the subject of the verdict and the reasons to doubt it."""
    conclusion = result.conclusion
    return _package_versions(
        status=result.status,
        verdict=conclusion.verdict,
        subject=conclusion.subject,
        marks=", ".join(concluded_labels(conclusion)) or None,
        reason=conclusion.reason,
        metric=conclusion.metric,
        best_arm=conclusion.best_arm,
        **{f"outcome.{comparison.arm}": comparison.outcome for comparison in conclusion.comparisons},
    )


def _package_versions(**facts: Any) -> dict[str, str | float]:
    return {name: value for name, value in facts.items() if value is not None}
