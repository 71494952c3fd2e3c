"""The power of a design before it is run: its level and floors, and its power over the range of unknowns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from evsys.optional import declared
from evsys.types import RunDeviation
from evsys_record.looks import Ledger
from evsys_record.questions import asked_question
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.confirm_entries import deciding_entry
from evsys_runtime.config.plan import ALPHA, MIN_TASKS, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.proof import proof_entry
from evsys_runtime.experiment.estimate.power_range import (
    PlannedTest,
    PowerRange,
    power_range,
    runs_needed,
    tasks_needed,
)
from evsys_runtime.experiment.estimate.results import Design
from evsys_runtime.experiment.estimate.unknowns import ASSUMED_DEVIATION, PriorKnowledge, prior_knowledge
from evsys_runtime.experiment.insight.evidence import Evidence
from evsys_runtime.experiment.prior.run_deviation import deviation_on_record
from evsys_runtime.experiment.search.confirmation import planned_repeats
from evsys_runtime.experiment.state.facts import asked_facts, benchmark_facts
from evsys_runtime.experiment.verdict.question import Question, question_of
from evsys_stats.alpha_spending import level_of_look
from evsys_stats.power import smallest_p_of
from evsys_stats.recipe import MIN_SEEDS, permutation_floor

__all__ = ["Designs"]


@attrs.frozen(kw_only=True)
class Designs:
    """The power of a plan's verdicts.

    Attributes:
        plan: a valid plan.
        benchmarks: its entries with their tasks.
        resolved: gives the plan as resolved.json has it.
        evidence: of the record.
    """

    plan: Plan
    benchmarks: Sequence[BoundBenchmark]
    resolved: Callable[[], Mapping[str, Any]]
    evidence: Evidence

    def experiment_design(self) -> Design | None:
        """That of the experiment; None where it has no success metric."""
        question = question_of(self.plan, tuple(self.benchmarks))
        if question is None:
            return None
        arms = planned_repeats(self.plan, "candidate")
        others = sum(1 for name in arms if name != question.baseline)
        return self._design(
            question, compared=others if question.contrast is None else 1, runs=min(arms.values())
        )

    def deviation(self) -> RunDeviation | None:
        """How far runs of similar recipes differ; None where that isn't on record."""
        question = question_of(self.plan, tuple(self.benchmarks))
        if question is None:
            return None
        configs = [arm["run"] for arm in self.resolved()["arms"] if arm.get("stage") is None]
        return deviation_on_record(self.evidence, configs, question, self._bound(question))

    def confirmation_design(self, seeds: int) -> Design | None:
        """That of the second trial of a winner with so many seeds; None where the plan has none."""
        runs, entry = seeds or self.plan.experiment.confirming_repeats, deciding_entry(self.plan)
        question = None if entry is None else question_of(self.plan, tuple(self.benchmarks), entry=entry)
        return None if question is None or not runs else self._design(question, compared=1, runs=runs)

    def _design(self, question: Question, *, compared: int, runs: int) -> Design:
        """The design of a question with this many arms besides the baseline and this many runs of each."""
        benchmark = self._deciding(question)
        look = self._look(question)
        known = prior_knowledge(question, benchmark, self.resolved(), self.evidence, runs=runs)
        level = level_of_look(look, ALPHA) / max(1, compared)
        test = _test(question, benchmark, known, level=level, runs=runs)
        boundary = 0.0 if test.at_zero else question.margin / known.width
        found = power_range(test, known.unknowns, boundary)
        floor = permutation_floor(runs, runs) if test.trained and runs > 1 else None
        baseline, unknowns = known.baseline, known.unknowns
        units = len({benchmark.clusters.get(t.task_id, f"task {t.task_id}") for t in benchmark.tasks})
        aim = question.margin / known.width
        return Design(
            metric=question.name,
            direction=question.direction,
            baseline=question.baseline,
            minimum_effect=question.minimum_effect,
            asked=question.claim,
            margin=question.margin,
            comparisons=compared,
            runs=runs,
            level=level,
            look=look,
            claim="recipe" if test.of_recipe else "checkpoint",
            tasks=len(benchmark.tasks),
            units=units,
            clustered=bool(benchmark.clusters),
            smallest_p=smallest_p_of(units, exact_binary=test.exact_binary),
            permutation_floor=floor,
            smallest_detectable_effect=_scale(found.safe, boundary, known.width),
            smallest_detectable_at_best=_scale(found.best, boundary, known.width),
            power_low=found.low,
            power_high=found.high,
            correlation=None if unknowns.difference else unknowns.correlation,
            base_rate=None if unknowns.difference else unknowns.base_rate,
            run_deviation=_times(unknowns.deviation, known.width) if test.of_recipe else None,
            tasks_needed=_tasks_needed(test, known, boundary, aim, len(benchmark.tasks)),
            runs_needed=runs_needed(test, unknowns, boundary, aim) if aim > 0 and test.of_recipe else None,
            baseline_score=None if baseline is None else float(np.mean(list(baseline.values.values()))),
            tasks_at_floor=None if baseline is None else baseline.count_at(known.low),
            tasks_at_ceiling=None if baseline is None else baseline.count_at(known.low + known.width),
            basis=known.basis,
            notes=tuple(
                _notes(test, known, found, floor=floor, units=units, clustered=bool(benchmark.clusters))
            ),
        )

    def _bound(self, question: Question) -> BoundBenchmark:
        return next(b for b in self.benchmarks if b.name == question.benchmark)

    def _deciding(self, question: Question) -> BoundBenchmark:
        """The entry that decides, with the tasks that do: those that select a checkpoint have no part in it."""
        benchmark = self._bound(question)
        selection = self.plan.selection
        if selection.proof != "held_out_tasks" or selection.proven != benchmark.name:
            return benchmark
        return attrs.evolve(benchmark, tasks=proof_entry(benchmark, held_out=True).tasks)

    def _look(self, question: Question) -> int:
        """Which look at its question this will be."""
        registry = self.plan.registry
        backends = [registry.get("backend", arm.run.backend.kind) for arm in self.plan.arms]
        asked = asked_question(
            {**asked_facts(self.plan), **benchmark_facts(self.benchmarks)},
            self.resolved(),
            simulated=any(declared(backend, "simulated", False) for backend in backends),
            entry=question.benchmark,
        )
        return 1 if asked is None else 1 + len(Ledger.of(self.evidence.index, asked.key).looks_at(asked))


def _test(
    question: Question, benchmark: BoundBenchmark, known: PriorKnowledge, *, level: float, runs: int
) -> PlannedTest:
    single = benchmark.num_samples == runs == 1 and not benchmark.clusters
    deviation, few = known.deviation, runs < MIN_SEEDS
    taken = deviation if few else None
    return PlannedTest(
        units=known.units,
        runs=runs,
        trained=question.baseline != BASE_MODEL,
        level=level,
        of_recipe=not few or deviation is not None,
        known=None if taken is None else (taken.standard_deviation / known.width, taken.freedom),
        exact_binary=single and known.baseline is not None and known.baseline.binary,
        may_be_exact=single and (known.baseline is None or known.baseline.binary),
        at_zero=question.claim in ("no_worse", "equal"),
        both_sides=question.claim == "equal",
    )


def _scale(distance: float | None, boundary: float, width: float) -> float | None:
    return None if distance is None else (boundary + distance) * width


def _times(ends: tuple[float, float], width: float) -> tuple[float, float]:
    return ends[0] * width, ends[1] * width


def _tasks_needed(
    test: PlannedTest, known: PriorKnowledge, boundary: float, distance: float, tasks: int
) -> int | None:
    """Tasks that show what is aimed at; None where nothing is, or where no number of tasks shows it."""
    times = tasks_needed(test, known.unknowns, boundary, distance) if distance > 0 else None
    return None if times is None else max(MIN_TASKS, math.ceil(times * tasks))


def _notes(
    test: PlannedTest,
    known: PriorKnowledge,
    found: PowerRange,
    *,
    floor: float | None,
    units: int,
    clustered: bool,
) -> Iterator[str]:
    """Notes on a design: facts missing in the record, and effects that it can't show."""
    runs, level = test.runs, test.level
    if test.of_recipe and known.deviation is None:
        yield f"the run-to-run deviation isn't on record: at most {ASSUMED_DEVIATION * known.width:g} is assumed"
    if test.of_recipe and test.known is None and floor is not None and floor > level:
        yield f"a permutation of {runs} seeds an arm gives p = {floor:.2g} at best, and {level:.2g} is needed, so it isn't made"
    if not test.of_recipe:
        word = "one training run" if runs == 1 else f"{runs} training runs"
        yield f"{word} of a recipe: the verdict is about these models; {MIN_SEEDS} allow one about the recipe"
    least = smallest_p_of(units, exact_binary=test.exact_binary)
    of = "clusters" if clustered else "tasks"
    if least > level:
        yield f"{units} {of} give p = {least:.2g} at best, and {level:.2g} is needed: nothing can win"
    elif found.safe is None:
        yield f"no effect is found with at least 80 % power on {units} {of}"
