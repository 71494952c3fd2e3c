"""The question of an experiment, from its record: metric, baseline, claim and level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys_record import BASE_MODEL
from evsys_runtime.audit.deviations import KnownDeviation, known_deviation
from evsys_runtime.audit.evidence import Evidence
from evsys_runtime.audit.metrics import TaskMetric, task_metric

__all__ = ["BASE_MODEL", "Question", "question_of"]


@attrs.frozen(kw_only=True)
class Question:
    """The success metric (`metric` of the entry `benchmark`), its direction, the baseline, the claim and its margin.

    `contrast` is the one arm that a claim is about, where the file names one. `rewards` is the range that verifiers declare; `range_known`
    is False for records that don't say. Tasks `left_out` don't count. `noise` is the noise floor on record.
    `deviation` is that of training runs, known from earlier ones.
    """

    benchmark: str
    metric: str
    task_metric: TaskMetric
    sign: float
    baseline: str
    claim: str
    margin: float
    contrast: str | None
    level: float
    draws: int
    rewards: tuple[float, float] | None
    range_known: bool
    deviation: KnownDeviation | None = None
    left_out: frozenset[str] = frozenset()
    noise: Mapping[str, Any] | None = None

    @property
    def least(self) -> float:
        """The effect that a win or a loss has to exceed."""
        return self.margin if self.claim in ("better", "worse") else 0.0

    def worst(self, seen: frozenset[float]) -> float | None:
        """The worst value that the metric of a task can have, by the rewards seen; None where it isn't known."""
        ends: tuple[float, float] | None = (0.0, 1.0)
        if self.task_metric.of_rewards and not seen <= {0.0, 1.0}:
            ends = None
        if self.task_metric.of_rewards and self.rewards is not None:
            ends = self.rewards
        return None if ends is None else ends[0] if self.sign > 0 else ends[1]

    def largest_difference(self, seen: frozenset[float]) -> float | None:
        """The largest difference that a task can have; None where it isn't known."""
        if not self.task_metric.of_rewards:
            return 1.0
        zero_one = (0.0, 1.0) if seen <= {0.0, 1.0} else None
        found = self.rewards or zero_one
        return None if found is None or found[0] == found[1] else found[1] - found[0]


def question_of(evidence: Evidence, benchmark: str | None = None) -> Question | str:
    """The question, or why it can't be recomputed.

    Args:
        evidence: the record.
        benchmark: the entry on which a winner was confirmed; None for the question of all arms. A confirmation
            spends a level of its own.
    """
    facts, conclusion = evidence.facts, evidence.conclusion
    success = str(facts["success_metric"])
    named = [str(entry["name"]) for entry in evidence.resolved.get("benchmarks") or ()]
    own = max((name for name in named if success.startswith(f"{name}.")), key=len, default=None)
    if own is None:
        return f"resolved.json has no benchmark entry of {success}"
    entry, metric = evidence.entry(benchmark or own), success.removeprefix(f"{own}.")
    known = task_metric(metric, entry)
    if known is None:
        return f"{metric} is a metric of a plugin, and an audit runs no plugins"
    deviation = conclusion.get("run_deviation") or {}
    same = deviation.get("metric") == f"{benchmark or own}.{metric}"
    contrast, margin = facts.get("contrast"), facts.get("margin")
    level, draws = _level_and_draws(conclusion, confirms=benchmark is not None)
    return Question(
        benchmark=benchmark or own,
        metric=metric,
        task_metric=known,
        sign=-1.0 if facts["direction"] == "min" else 1.0,
        baseline=str(facts["baseline"]),
        claim=str(facts.get("claim") or "better"),
        margin=float((facts.get("minimum_effect") if margin is None else margin) or 0.0),
        contrast=None if contrast is None else contrast["arm"],
        level=level,
        draws=draws,
        rewards=_finite(entry.get("reward_range")),
        range_known="reward_range" in entry,
        deviation=known_deviation(deviation) if same else None,
        noise=conclusion.get("noise_floor"),
    )


def _level_and_draws(conclusion: Mapping[str, Any], *, confirms: bool) -> tuple[float, int]:
    procedure, looks = conclusion.get("procedure") or {}, conclusion.get("looks")
    own = looks if confirms and looks is not None else procedure
    draws = 10_000 if confirms else int(procedure.get("draws") or 10_000)
    return float(own.get("level") or 0.05), draws


def _finite(declared: Sequence[float | None] | None) -> tuple[float, float] | None:
    """A range on record, where an infinite end is null; None where one isn't known."""
    low, high = declared or (None, None)
    return None if low is None or high is None else (float(low), float(high))
