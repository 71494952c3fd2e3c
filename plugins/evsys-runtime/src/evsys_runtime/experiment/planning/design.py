"""What a design can see, before it is run: its levels and floors, and the spread that scores on record had."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from evsys_runtime.config.plan import ALPHA, MIN_TASKS, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.proof import proof_entry
from evsys_runtime.experiment.added.confirm import planned_repeats
from evsys_runtime.experiment.added.confirm_entries import deciding_entry
from evsys_runtime.experiment.planning.evidence import Evidence, PastArm, PastScoring
from evsys_runtime.experiment.verdict.paired import Paired, Seeds, satterthwaite
from evsys_runtime.experiment.verdict.power import detectable, runs_to_show, smallest_p, tasks_to_show
from evsys_runtime.experiment.verdict.question import BASE_MODEL, Question, question_of
from evsys_runtime.experiment.verdict.recipe import MIN_SEEDS, permutation_floor
from evsys_runtime.record.leaves import arm_leaves
from evsys_runtime.record.plans import Design

__all__ = ["confirming_design", "design_of"]

CORRELATION = 0.5
"""Assumed of an arm's and the baseline's scores of one task, where no comparison on record tells."""

_Z = 1.959963984540054


@attrs.frozen(kw_only=True)
class _Baseline:
    """The baseline's stored scores: the mean of each task's samples, and whose they are."""

    values: Mapping[str, float]
    binary: bool
    words: str

    def at(self, end: float) -> int:
        return sum(1 for value in self.values.values() if abs(value - end) <= 1e-12)


def design_of(
    plan: Plan, benchmarks: Sequence[BoundBenchmark], resolved: Mapping[str, Any], evidence: Evidence
) -> Design | None:
    """What the verdict of a plan will be able to see; None where it has no success metric.

    Args:
        plan: a valid plan.
        benchmarks: its entries with their tasks.
        resolved: the plan as resolved.json has it.
        evidence: what is on record.
    """
    question = question_of(plan, tuple(benchmarks))
    if question is None:
        return None
    arms = planned_repeats(plan, "candidate")
    others = sum(1 for name in arms if name != question.baseline)
    compared = others if question.contrast is None else 1
    deciding = _deciding(plan, benchmarks, question)
    return _design(question, deciding, resolved, evidence, compared=compared, runs=min(arms.values()))


def confirming_design(
    plan: Plan, benchmarks: Sequence[BoundBenchmark], resolved: Mapping[str, Any], evidence: Evidence
) -> Design | None:
    """What the second trial of a winner will be able to see, see `design_of`; None where the plan has none."""
    runs, entry = plan.experiment.confirming_repeats, deciding_entry(plan)
    question = None if entry is None else question_of(plan, tuple(benchmarks), entry=entry)
    if question is None or not runs:
        return None
    return _design(question, _deciding(plan, benchmarks, question), resolved, evidence, compared=1, runs=runs)


def _deciding(plan: Plan, benchmarks: Sequence[BoundBenchmark], question: Question) -> BoundBenchmark:
    """The entry that decides, with the tasks that do: those that select a checkpoint have no part in it."""
    benchmark = next(b for b in benchmarks if b.name == question.benchmark)
    if plan.selection.proof != "held_out_tasks" or plan.selection.proven != benchmark.name:
        return benchmark
    return attrs.evolve(benchmark, tasks=proof_entry(benchmark, held_out=True).tasks)


def _design(
    question: Question,
    benchmark: BoundBenchmark,
    resolved: Mapping[str, Any],
    evidence: Evidence,
    *,
    compared: int,
    runs: int,
) -> Design:
    """What a question can be answered to, with so many arms beside the baseline and so many runs of each."""
    baseline = _stored_baseline(question, benchmark, resolved, evidence)
    expected = _expected(question, benchmark, resolved, evidence, baseline=baseline, runs=runs)
    paired, low, high = expected.paired, *_ends(question)
    level, wanted = ALPHA / max(1, compared), question.minimum_effect
    floor = permutation_floor(runs, runs) if question.baseline != BASE_MODEL and runs > 1 else None
    seen = detectable(paired, level)
    return Design(
        metric=question.name,
        direction=question.direction,
        baseline=question.baseline,
        minimum_effect=wanted,
        comparisons=compared,
        runs=runs,
        level=level,
        claim="checkpoint" if paired.seeds is None else "recipe",
        tasks=paired.n,
        units=paired.clusters,
        clustered=bool(benchmark.clusters),
        smallest_p=smallest_p(paired),
        permutation_floor=floor,
        smallest_detectable_effect=seen,
        tasks_needed=_tasks_needed(paired, expected.by_task, wanted, level),
        runs_needed=runs_to_show(paired, wanted, level) if wanted > 0 and expected.by_seed > 0 else None,
        baseline_score=None if baseline is None else float(np.mean(list(baseline.values.values()))),
        tasks_at_floor=None if baseline is None else baseline.at(low),
        tasks_at_ceiling=None if baseline is None else baseline.at(high),
        basis=expected.basis,
        notes=tuple(_notes(expected, benchmark, level=level, runs=runs, floor=floor, seen=seen)),
    )


@attrs.frozen(kw_only=True)
class _Expected:
    """A comparison with the spread that is expected of it: its squared error by task and by seed, and where that is from."""

    paired: Paired
    by_task: float
    by_seed: float
    basis: str
    runs_vary: float | None


def _ends(question: Question) -> tuple[float, float]:
    """The least and the greatest score of a task, as far as that is known."""
    return question.possible(question.reward_range or (0.0, 1.0)) or (0.0, 1.0)


def _expected(
    question: Question,
    benchmark: BoundBenchmark,
    resolved: Mapping[str, Any],
    evidence: Evidence,
    *,
    baseline: _Baseline | None,
    runs: int,
) -> _Expected:
    """The comparison of an arm with the baseline as what is on record lets expect it, with an effect of 0."""
    low, high = _ends(question)
    width = high - low if math.isfinite(high - low) and high > low else 1.0
    clusters = benchmark.clusters
    units = len({clusters.get(task.task_id, f"task {task.task_id}") for task in benchmark.tasks})
    spread, basis = _spread(question, benchmark, baseline, evidence, width=width, units=units, runs=runs)
    variance = _run_variance(question, benchmark, resolved, evidence)
    sides = (runs,) * (1 if question.baseline == BASE_MODEL else 2)
    by_seed, by_task = (variance or 0.0) * len(sides) / runs, spread**2 / units
    binary = bool(baseline and baseline.binary and runs == 1 and not clusters)
    paired = Paired(
        effect=0.0,
        low=-width,
        high=width,
        p_value=1.0,
        standard_error=math.sqrt(by_task + by_seed),
        n=len(benchmark.tasks),
        clusters=units,
        method="",
        # Whether enough tasks will differ isn't known where each differs by all or nothing, or none did so far.
        differing=0 if binary or not spread else units,
        scale=width,
        exact_binary=binary,
        seeds=_seeds(by_seed, by_task, sides, units) if runs >= MIN_SEEDS else None,
    )
    return _Expected(paired=paired, by_task=by_task, by_seed=by_seed, basis=basis, runs_vary=variance)


def _notes(
    expected: _Expected,
    benchmark: BoundBenchmark,
    *,
    level: float,
    runs: int,
    floor: float | None,
    seen: float | None,
) -> Iterator[str]:
    """What else to know of a design: what isn't on record, and what it can't show."""
    paired, recipe = expected.paired, expected.paired.seeds is not None
    if recipe and expected.runs_vary is None:
        yield "how far runs of one recipe fall apart isn't on record: the smallest effect is without that"
    if recipe and floor is not None and floor > level:
        yield f"a permutation of {runs} seeds an arm gives p = {floor:.2g} at best, and {level:.2g} is needed, so it isn't made"
    if not recipe:
        word = "one training run" if runs == 1 else f"{runs} training runs"
        yield f"{word} of a recipe: the verdict is about these models; {MIN_SEEDS} allow one about the recipe"
    if seen is None:
        of = "clusters" if benchmark.clusters else "tasks"
        least = smallest_p(paired)
        yield f"{paired.clusters} {of} give p = {least:.2g} at best, and {level:.2g} is needed: nothing can win"


def _tasks_needed(paired: Paired, by_task: float, wanted: float, level: float) -> int | None:
    """Tasks that show the wanted effect, as far as tasks can; None where none is wanted."""
    if wanted <= 0:
        return None
    of_tasks = attrs.evolve(paired, seeds=None, standard_error=math.sqrt(by_task))
    return max(MIN_TASKS, tasks_to_show(of_tasks, wanted, level))


def _stored_baseline(
    question: Question, benchmark: BoundBenchmark, resolved: Mapping[str, Any], evidence: Evidence
) -> _Baseline | None:
    """The newest scores on record of what arms are compared with, on these very tasks."""
    arms = {arm["arm"]: arm["run"] for arm in resolved["arms"]}
    own = arms.get(question.baseline)
    first = resolved["arms"][0]["run"]
    for scoring in evidence.scorings(benchmark.benchmark_hash):
        same = _same_start(scoring, first) if own is None else _same_arm(scoring, own)
        if not same:
            continue
        rewards = scoring.evaluation.task_rewards
        values = {task: question.task_value(given) for task, given in rewards.items() if given}
        known = {task: value for task, value in values.items() if value is not None}
        if known:
            where = f"{scoring.run.run_id} of {scoring.arm.experiment.experiment_id}"
            binary = scoring.evaluation.num_samples == benchmark.num_samples == 1 and set(known.values()) <= {
                0.0,
                1.0,
            }
            return _Baseline(values=known, binary=binary, words=where)
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


def _spread(
    question: Question,
    benchmark: BoundBenchmark,
    baseline: _Baseline | None,
    evidence: Evidence,
    *,
    width: float,
    units: int,
    runs: int,
) -> tuple[float, str]:
    """The standard deviation of a difference of one unit (a task, or a cluster), and from what it is known.

    Differences of means over more runs than are planned are narrower than those will be, so they count only where there are no others.
    """
    seen: list[tuple[bool, float, str]] = []
    for arm in _alike(question, benchmark, evidence):
        # What tasks of a cluster have in common is in the error of a comparison by the same clusters, and in no other.
        of_unit = units / len(benchmark.tasks) if _clustered_alike(arm, benchmark) else 1.0
        for comparison in arm.experiment.comparisons:
            low, high, n = comparison.low, comparison.high, comparison.n_tasks
            if comparison.claim == "checkpoint" and n and low is not None and high is not None and high > low:
                spread = (high - low) / 2 / _Z * math.sqrt(n * of_unit)
                seen.append((comparison.n_seeds > runs, spread, arm.experiment.experiment_id))
    if seen:
        of_more = all(more for more, _, _ in seen)
        counted = [(spread, whose) for more, spread, whose in seen if more is of_more]
        ids = list(dict.fromkeys(whose for _, whose in counted))
        of = ids[0] if len(ids) == 1 else f"{len(ids)} experiments, the newest {ids[0]}"
        said = f"the widest differences on these tasks that are on record in {of}"
        more_words = ", which are of more runs than here and narrower for it" if of_more else ""
        return max(spread for spread, _ in counted), said + more_words
    if baseline is not None:
        spread = float(np.std(list(baseline.values.values()), ddof=1)) if len(baseline.values) > 1 else 0.0
        said = f"the baseline's scores of {baseline.words}; a correlation of {CORRELATION:g} with an arm's is assumed"
        return spread * math.sqrt(2 * (1 - CORRELATION)), said
    said = f"nothing on record: the largest spread that scores can have, and a correlation of {CORRELATION:g}, are assumed"
    return width / 2 * math.sqrt(2 * (1 - CORRELATION)), said


def _alike(question: Question, benchmark: BoundBenchmark, evidence: Evidence) -> list[PastArm]:
    """An arm of each experiment on record that was decided by the same metric of the same tasks."""
    found = {
        arm.experiment.experiment_id: arm
        for arm in evidence.arms_scored_on(benchmark.benchmark_hash)
        if _same_metric(arm, question, benchmark)
    }
    return list(found.values())


def _clustered_alike(arm: PastArm, benchmark: BoundBenchmark) -> bool:
    return any(
        entry.get("hash") == benchmark.benchmark_hash and entry.get("cluster_key") == benchmark.cluster_key
        for entry in arm.benchmarks
    )


def _run_variance(
    question: Question, benchmark: BoundBenchmark, resolved: Mapping[str, Any], evidence: Evidence
) -> float | None:
    """How far runs of one recipe fall apart, by the arms on record that train like these and were scored on these tasks."""
    first = resolved["arms"][0]["run"]
    squares, freedom = 0.0, 0
    for arm in evidence.arms_scored_on(benchmark.benchmark_hash):
        if not arm.trained_as(first) or not _same_metric(arm, question, benchmark):
            continue
        scores = [run.score for run in arm.runs if run.score is not None]
        if len(scores) > 1:
            squares += float(np.var(scores, ddof=1)) * (len(scores) - 1)
            freedom += len(scores) - 1
    return squares / freedom if freedom else None


def _same_metric(arm: PastArm, question: Question, benchmark: BoundBenchmark) -> bool:
    """Whether an experiment on record was decided by the same metric of the same tasks, with as many samples of each."""
    return any(
        entry.get("hash") == benchmark.benchmark_hash
        and entry.get("num_samples", 1) == benchmark.num_samples
        and f"{entry.get('name')}.{question.metric}" == arm.experiment.metric
        for entry in arm.benchmarks
    )


def _seeds(by_seed: float, by_task: float, runs: tuple[int, ...], units: int) -> Seeds:
    """The error by seed and by task, and the degrees of freedom of both; `runs` of each trained side are as many."""
    parts = ((by_seed, len(runs) * (runs[0] - 1)), (by_task, max(1, units - 1)))
    return Seeds(by_seed=by_seed, by_task=by_task, freedom=satterthwaite(by_seed + by_task, parts), runs=runs)
