"""The ranges of what a plan doesn't know, narrowed by experiments on record like it.

Like it are those with the same model, kind of backend, tasks, samples and metric. Those that can't be relied on,
simulated ones included, don't count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import attrs
import numpy as np

from evsys.types import Comparison, RunDeviation
from evsys_record.leaves import arm_leaves
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.estimate.power_range import Unknowns
from evsys_runtime.experiment.insight.evidence import Evidence, PastArm, PastScoring
from evsys_runtime.experiment.prior.run_deviation import deviation_on_record, is_reliable
from evsys_runtime.experiment.verdict.question import Question

__all__ = ["ASSUMED_DEVIATION", "Baseline", "PriorKnowledge", "prior_knowledge"]

ASSUMED_DEVIATION = 0.05
"""The run-to-run deviation assumed at most if none is on record, as a part of the range of scores."""

_Z_OF_ENDS = 1.2815515655446004
"""Each end of a range from the record is passed with a probability of one in ten."""


@attrs.frozen(kw_only=True)
class Baseline:
    """The baseline's stored scores: the mean of each task's samples, and whose they are."""

    values: Mapping[str, float]
    binary: bool
    words: str

    def count_at(self, end: float) -> int:
        """Tasks with this score."""
        return sum(1 for value in self.values.values() if abs(value - end) <= 1e-12)


@attrs.frozen(kw_only=True)
class PriorKnowledge:
    """Prior knowledge of a comparison: `units` are independent tasks, or clusters as they count; `width` is the
    range of scores, from `low` on.
    """

    unknowns: Unknowns
    units: float
    low: float
    width: float
    baseline: Baseline | None
    deviation: RunDeviation | None
    basis: str


def prior_knowledge(
    question: Question,
    benchmark: BoundBenchmark,
    resolved: Mapping[str, Any],
    evidence: Evidence,
    *,
    runs: int,
) -> PriorKnowledge:
    """The prior knowledge of a comparison.

    Args:
        question: of the experiment.
        benchmark: the deciding entry, with the deciding tasks.
        resolved: the plan as resolved.json has it.
        evidence: of the record.
        runs: of each arm.
    """
    low, high = question.possible(question.reward_range or (0.0, 1.0)) or (0.0, 1.0)
    width = high - low if math.isfinite(high - low) and high > low else 1.0
    units = _effective_units(benchmark)
    baseline = _stored_baseline(question, benchmark, resolved, evidence)
    configs = [arm["run"] for arm in resolved["arms"] if arm.get("stage") is None]
    deviation = deviation_on_record(evidence, configs, question, benchmark)
    unknowns, basis = _unknowns_from_scores(question, baseline, low, width)
    seen = list(_differences(question, benchmark, resolved, evidence, units=units, runs=runs))
    if seen:
        ids = list(dict.fromkeys(whose for *_, whose in seen))
        of = ids[0] if len(ids) == 1 else f"{len(ids)} experiments, the newest {ids[0]}"
        ends = (min(least for least, _, _ in seen) / width**2, max(most for _, most, _ in seen) / width**2)
        unknowns, basis = attrs.evolve(unknowns, difference=ends), f"differences on these tasks in {of}"
    return PriorKnowledge(
        unknowns=attrs.evolve(unknowns, deviation=_deviation_range(deviation, width)),
        units=units,
        low=low,
        width=width,
        baseline=baseline,
        deviation=deviation,
        basis=basis,
    )


def _effective_units(benchmark: BoundBenchmark) -> float:
    """Tasks, or as many clusters of equal size as say as much as those that there are (Kish 1965)."""
    clusters = benchmark.clusters
    sizes = Counter(clusters.get(task.task_id, f"task {task.task_id}") for task in benchmark.tasks).values()
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def _unknowns_from_scores(
    question: Question, baseline: Baseline | None, low: float, width: float
) -> tuple[Unknowns, str]:
    """The ranges by the baseline's scores, or by nothing."""
    if baseline is None or len(baseline.values) < 2:
        return Unknowns(), "the widest spread there can be, since nothing like it is on record"
    values = (np.array(list(baseline.values.values())) - low) / width
    values = np.clip(values if question.direction == "max" else 1.0 - values, 0.0, 1.0)
    n, rate, variance = len(values), float(values.mean()), float(values.var(ddof=1))
    # One task of either kind more keeps a rate of 0 or 1 from being certain.
    spread = _Z_OF_ENDS * math.sqrt(max(variance, (n + 1) / (n + 2) ** 2) / n)
    unknowns = Unknowns(base_rate=(max(0.0, rate - spread), min(1.0, rate + spread)))
    if not baseline.binary and variance > 0:
        least, most = _ends(variance, n - 1)
        unknowns = attrs.evolve(unknowns, base_variance=(least, most))
    return unknowns, f"the baseline's scores of {baseline.words}"


def _differences(
    question: Question,
    benchmark: BoundBenchmark,
    resolved: Mapping[str, Any],
    evidence: Evidence,
    *,
    units: float,
    runs: int,
) -> Iterator[tuple[float, float, str]]:
    """The range of the variance of a difference of one unit by each comparison on record, and whose it is.

    Sampling makes differences of means over more runs narrower, by as many times at most as there are more runs.
    """
    for arm in _alike(question, benchmark, resolved, evidence):
        # What tasks of a cluster have in common is in the error of a comparison by the same clusters, and in no other.
        of_unit = units / len(benchmark.tasks) if _clustered_alike(arm, benchmark) else 1.0
        for comparison in arm.experiment.comparisons:
            error = _error(comparison, len(arm.experiment.comparisons))
            if error is not None and comparison.n_tasks * of_unit >= 2:
                counted = comparison.n_tasks * of_unit
                times = comparison.n_seeds / runs if comparison.n_seeds else 1.0
                least, most = _ends(error**2 * counted, counted - 1)
                yield least * min(1.0, times), most * max(1.0, times), arm.experiment.experiment_id


def _error(comparison: Comparison, family: int) -> float | None:
    """The standard error of a comparison of models, one of so many; None where it isn't known.

    If hardly a task differs, the estimated error is not evidence, and the width of the interval says more.
    """
    low, high = comparison.low, comparison.high
    if comparison.claim != "checkpoint" or not comparison.n_tasks or low is None or high is None:
        return None
    level = ALPHA if comparison.level is None else comparison.level
    by_width = (high - low) / 2 / NormalDist().inv_cdf(1 - level / family / 2)
    return max(comparison.standard_error or 0.0, by_width) or None


def _ends(variance: float, freedom: float) -> tuple[float, float]:
    """The range of a variance estimated with so many degrees of freedom (Wilson & Hilferty 1931)."""
    part = 2.0 / (9.0 * freedom)
    ends = [max(0.02, 1.0 - part + sign * _Z_OF_ENDS * math.sqrt(part)) ** 3 for sign in (1.0, -1.0)]
    return variance / ends[0], variance / ends[1]


def _deviation_range(deviation: RunDeviation | None, width: float) -> tuple[float, float]:
    if deviation is None:
        return 0.0, ASSUMED_DEVIATION
    least, most = _ends(deviation.standard_deviation**2, deviation.freedom)
    return math.sqrt(least) / width, math.sqrt(most) / width


def _alike(
    question: Question, benchmark: BoundBenchmark, resolved: Mapping[str, Any], evidence: Evidence
) -> list[PastArm]:
    """An arm of each reliable experiment with such a model and backend decided by the same metric of the same tasks."""
    wanted = [_starts(arm["run"]) for arm in resolved["arms"]]
    trained = question.baseline != BASE_MODEL
    found = {
        arm.experiment.experiment_id: arm
        for arm in evidence.arms_scored_on(benchmark.benchmark_hash)
        if is_reliable(arm)
        and _starts(arm.run) in wanted
        and (arm.experiment.baseline != BASE_MODEL) is trained
        and _same_metric(arm, question, benchmark)
    }
    return list(found.values())


def _starts(run: Mapping[str, Any]) -> tuple[Any, Any]:
    """The model and the kind of backend of an arm."""
    return (run.get("model") or {}).get("name"), (run.get("backend") or {}).get("kind")


def _clustered_alike(arm: PastArm, benchmark: BoundBenchmark) -> bool:
    return any(
        entry.get("hash") == benchmark.benchmark_hash and entry.get("cluster_key") == benchmark.cluster_key
        for entry in arm.benchmarks
    )


def _same_metric(arm: PastArm, question: Question, benchmark: BoundBenchmark) -> bool:
    """Whether an experiment on record was decided by the same metric of the same tasks, with as many samples of each."""
    return any(
        entry.get("hash") == benchmark.benchmark_hash
        and entry.get("num_samples", 1) == benchmark.num_samples
        and f"{entry.get('name')}.{question.metric}" == arm.experiment.metric
        for entry in arm.benchmarks
    )


def _stored_baseline(
    question: Question, benchmark: BoundBenchmark, resolved: Mapping[str, Any], evidence: Evidence
) -> Baseline | None:
    """The newest reliable scores on record of what arms are compared with, on these very tasks."""
    arms: Sequence[Mapping[str, Any]] = resolved["arms"]
    own = next((arm["run"] for arm in arms if arm["arm"] == question.baseline), None)
    for scoring in evidence.scorings(benchmark.benchmark_hash):
        same = _same_start(scoring, arms[0]["run"]) if own is None else _same_arm(scoring, own)
        if not same or not is_reliable(scoring.arm):
            continue
        rewards = scoring.evaluation.task_rewards
        values = {task: question.task_value(given) for task, given in rewards.items() if given}
        known = {task: value for task, value in values.items() if value is not None}
        if known:
            where = f"{scoring.run.run_id} of {scoring.arm.experiment.experiment_id}"
            single = scoring.evaluation.num_samples == benchmark.num_samples == 1
            return Baseline(values=known, binary=single and set(known.values()) <= {0.0, 1.0}, words=where)
    return None


def _same_start(scoring: PastScoring, run: Mapping[str, Any]) -> bool:
    parts = ("model", "backend")
    past, own = ({part: each.get(part) for part in parts} for each in (scoring.arm.run, run))
    return scoring.evaluation.step == 0 and arm_leaves(past) == arm_leaves(own)


def _same_arm(scoring: PastScoring, run: Mapping[str, Any]) -> bool:
    return (
        scoring.run.status == "completed"
        and scoring.evaluation.step == scoring.run.steps
        and scoring.arm.leaves == arm_leaves(run)
    )
