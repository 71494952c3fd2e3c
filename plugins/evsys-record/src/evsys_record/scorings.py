"""The scores of a run's result that count, and their mean over the repeats of an arm."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import attrs

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_record.proofs import proof_name

__all__ = ["THROUGH", "final_scoring", "mean_over_repeats", "metric_of", "untrained_scoring", "value_of"]

THROUGH = ("completed", "stopped")
"""Statuses of runs that did everything that was asked of them, in the end."""


def metric_of(evaluation: EvaluationResult | None, metric: str) -> MetricValue | None:
    """A metric of a scoring; None where that wasn't completed, or hasn't got it."""
    if evaluation is None or evaluation.status != "completed":
        return None
    return evaluation.metrics.get(metric)


def value_of(evaluation: EvaluationResult | None, metric: str) -> float | None:
    """The number of `metric_of`; None where there is none."""
    found = metric_of(evaluation, metric)
    return None if found is None else found.value


def final_scoring(result: ArmResult, benchmark: str) -> EvaluationResult | None:
    """The evaluation of the weights that count of a run completed, or stopped on request: those of its selected checkpoint, else its last
    ones.

    If the entry selected them itself, that of its proof. Evaluations on the way of an unfinished run aren't its
    result.
    """
    if result.status not in THROUGH:
        return None
    selected = None if result.run is None else result.run.selected_checkpoint
    scored = [e for e in _scorings(result, benchmark) if e.step > 0]
    if selected is not None:
        scored = [e for e in scored if e.step == selected.step]
    return max(scored, key=lambda e: e.step, default=None)


def untrained_scoring(result: ArmResult, benchmark: str) -> EvaluationResult | None:
    """The scoring of what a run started from, on the tasks that `final_scoring` has."""
    return next((e for e in _scorings(result, benchmark) if e.step == 0), None)


def _scorings(result: ArmResult, benchmark: str) -> list[EvaluationResult]:
    """The scorings of a run's own weights on an entry; on its proof alone if there is one."""
    own = [e for e in result.evaluations if e.model is None]
    proof = [e for e in own if e.benchmark == proof_name(benchmark)]
    return proof or [e for e in own if e.benchmark == benchmark]


def mean_over_repeats(values: Sequence[MetricValue]) -> MetricValue:
    """The mean of a metric over the repeats of an arm, with the mean of their bounds.

    Repeats are scored on the same tasks, so their errors are correlated, by how much isn't known here. The standard error
    of a mean is at most the mean of the standard errors (Minkowski's inequality), so the interval is wide enough
    whatever the correlation. It is about tasks; how seeds differ is for the comparison of arms.
    """
    known = [(value, value.value) for value in values if value.value is not None]
    if len(known) < 2:
        return known[0][0] if known else values[0]
    lows = [value.low for value, _ in known if value.low is not None]
    highs = [value.high for value, _ in known if value.high is not None]
    return attrs.evolve(
        known[0][0],
        value=fmean([number for _, number in known]),
        low=fmean(lows) if len(lows) == len(known) else None,
        high=fmean(highs) if len(highs) == len(known) else None,
        n=min(value.n for value, _ in known),
        excluded=max(value.excluded for value, _ in known),
        method=", ".join(dict.fromkeys(value.method for value, _ in known if value.method)) or None,
    )
