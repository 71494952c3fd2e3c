"""`evsys plan`: the cost and the power of an experiment. Rows and the record are read; nothing is trained, sampled
or paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache

import attrs

from evsys import use_registry
from evsys.errors import PluginError
from evsys.optional import declared
from evsys.types import Usage
from evsys_record.index import Index
from evsys_record.proofs import proven_name
from evsys_runtime.accounting.prices import load_prices
from evsys_runtime.config.confirm_entries import is_scored
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.settings import project_settings
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.proof import proofs_of
from evsys_runtime.experiment.budget.project_budget import project_limits
from evsys_runtime.experiment.estimate.confirmation import planned_confirm, scorings_of_run
from evsys_runtime.experiment.estimate.design import Designs
from evsys_runtime.experiment.estimate.fit import planned_limits
from evsys_runtime.experiment.estimate.neighbours import neighbours
from evsys_runtime.experiment.estimate.results import Planned, PlannedArm, PlannedScoring
from evsys_runtime.experiment.estimate.reuse import reused_runs
from evsys_runtime.experiment.estimate.search import merge_search_arms, planned_search, with_stand_ins
from evsys_runtime.experiment.estimate.training import Trainings
from evsys_runtime.experiment.insight.evidence import Evidence
from evsys_runtime.experiment.insight.failure_regions import failure_warnings
from evsys_runtime.experiment.insight.repeats import repeats
from evsys_runtime.experiment.open_session import bound_benchmarks
from evsys_runtime.experiment.preflight.leak_warnings import leak_warnings
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.state.resolved_tree import resolved_tree
from evsys_runtime.experiment.state.seeds import seeds_of
from evsys_runtime.experiment.state.starting_weights import scores_untrained, untrained_key

__all__ = ["plan_experiment"]


def plan_experiment(plan: Plan, index: Index, *, read_rows: bool = True) -> Planned:
    """Estimate the cost and the power of an experiment.

    Args:
        plan: a valid plan.
        index: of the experiments on record, as of now.
        read_rows: read and render the training rows, which runs their transforms; False leaves derived numbers
            unknown.

    Raises:
        ConfigError, DataError, StoreError, PluginError: tasks or rows can't be read or bound.
    """
    with use_registry(plan.registry), use_scope(DataScope(project_root=plan.project_root)):
        benchmarks = bound_benchmarks(plan, Options())
        search, plan = planned_search(plan), with_stand_ins(plan)
        resolved = cache(lambda: resolved_tree(plan, benchmarks))
        evidence = Evidence(index)
        prices = load_prices(plan.project_root)
        trainings = Trainings(plan, evidence, prices, read_rows=read_rows)
        settings = project_settings(plan.project_root)
        notes: list[str] = []
        reused: Mapping[str, str] = {}
        if read_rows:
            reused = reused_runs(plan, benchmarks, index, trainings=trainings, warnings=notes)
        arms = _add_reused_runs(plan, trainings.arms(), reused)
        scored = (*benchmarks, *_proofs(plan, benchmarks))
        scorings = [_scoring(plan, benchmark, arms, evidence, reused=reused) for benchmark in scored]
        found = merge_search_arms(plan, arms)
        doubts = [
            doubt for model in dict.fromkeys(arm.model for arm in arms) for doubt in prices.doubts(model)
        ]
        runs_in_all = sum(arm.runs for arm in found)
        counted = search is None or search.arms is not None
        concurrent = min(plan.concurrent_arms, runs_in_all) if counted else plan.concurrent_arms
        designs = Designs(plan=plan, benchmarks=benchmarks, resolved=resolved, evidence=evidence)
        confirm = planned_confirm(plan, benchmarks, arms, designs)
        budget = plan.experiment.budget
        own = {} if budget is None else attrs.asdict(budget)
        left = {name: each.left for name, each in project_limits(settings.budget, [index]).items()}
        return Planned(
            name=plan.experiment.name,
            config=plan.document.source,
            runs=runs_in_all,
            concurrent=concurrent,
            arms=tuple(found),
            search=search,
            scorings=tuple(scorings),
            steps=_total(found, lambda arm: arm.steps),
            trained_tokens=_total(found, lambda arm: arm.trained_tokens),
            seconds=_sum(
                [_total(found, lambda arm: arm.seconds), *(scoring.seconds for scoring in scorings)]
            ),
            cost_usd=_sum(
                [*(arm.cost_usd for arm in _each_run(found)), *(scoring.cost_usd for scoring in scorings)]
            ),
            design=designs.experiment_design(),
            confirm=confirm,
            budget=tuple(planned_limits(own, found, scorings, confirm, concurrent)),
            project=tuple(planned_limits(left, found, scorings, confirm, concurrent)),
            neighbours=()
            if search is not None or evidence.is_empty
            else tuple(neighbours(resolved(), evidence, trainings.fingerprints)),
            warnings=(
                *plan.warnings,
                *notes,
                *(leak_warnings(plan) if read_rows else ()),
                *doubts,
                *failure_warnings(plan, index),
                *repeats(plan, index),
            ),
        )


def _each_run(arms: Sequence[PlannedArm]) -> list[PlannedArm]:
    """An arm once for each of its runs that is made."""
    return [arm for arm in arms for _ in range(arm.made)]


def _add_reused_runs(plan: Plan, arms: Sequence[PlannedArm], reused: Mapping[str, str]) -> list[PlannedArm]:
    """The arms with the experiments that their runs are taken from."""
    sources: dict[str, list[str]] = {}
    for arm in plan.arms if reused else ():
        if arm.run_id in reused:
            sources.setdefault(arm.label, []).append(reused[arm.run_id])
    return [attrs.evolve(arm, reused=tuple(sources.get(arm.arm, ()))) if sources else arm for arm in arms]


def _total[N: (int, float)](arms: Sequence[PlannedArm], value: Callable[[PlannedArm], N | None]) -> N | None:
    """The sum over all runs; None where one isn't known."""
    return _sum([value(arm) for arm in _each_run(arms)])


def _sum[N: (int, float)](values: Sequence[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None


def _scoring(
    plan: Plan,
    benchmark: BoundBenchmark,
    arms: Sequence[PlannedArm],
    evidence: Evidence,
    *,
    reused: Collection[str],
) -> PlannedScoring:
    """How often an entry is scored: untrained, on the way, in the end, and on API models."""
    scored = _scored_arms(plan, benchmark)
    labels = {arm.label for arm in scored if arm.weights_of is None}
    trained = (
        _total([arm for arm in arms if arm.arm in labels], lambda arm: scorings_of_run(benchmark, arm.steps))
        if labels
        else 0
    )
    planned = PlannedScoring(
        benchmark=benchmark.name,
        split=benchmark.split,
        tasks=len(benchmark.tasks),
        num_samples=benchmark.num_samples,
    )
    if trained is None:
        return planned
    scorings = (
        trained + _count_untrained(plan, benchmark, scored, reused) + (len(benchmark.models) if scored else 0)
    )
    rollouts = scorings * len(benchmark.tasks) * benchmark.num_samples
    planned = attrs.evolve(planned, scorings=scorings, rollouts=rollouts)
    if benchmark.models or benchmark.inference is not None:
        return planned
    free = _is_free(plan, benchmark)
    used = _rollout_costs(benchmark, arms, evidence)
    if used is None:
        return attrs.evolve(planned, cost_usd=0.0 if free else None)
    tokens, seconds, cost = used
    cost = 0.0 if free else cost
    return attrs.evolve(
        planned,
        tokens=round(tokens * rollouts),
        seconds=seconds * rollouts,
        cost_usd=None if cost is None else cost * rollouts,
    )


def _is_free(plan: Plan, benchmark: BoundBenchmark) -> bool:
    """Whether no one is paid for a rollout: models that cost nothing, no environment of someone else's, no judge."""
    backends = [("backend", arm.run.backend.kind) for arm in plan.arms]
    if benchmark.environment is not None:
        return False
    try:
        backends_free = all(declared(plan.registry.get(*named), "free", False) for named in backends)
        verifiers = [plan.registry.get("verifier", name) for name in benchmark.verifier_sources]
    except PluginError:  # what can't be looked up by its name may cost something
        return False
    return backends_free and all(declared(verifier, "free", True) for verifier in verifiers)


def _proofs(plan: Plan, benchmarks: Sequence[BoundBenchmark]) -> Iterator[BoundBenchmark]:
    """The additional evaluations for the selection of checkpoints; a rollout of one takes as much as one of the
    entry that it proves.
    """
    hashes = {benchmark.name: benchmark.benchmark_hash for benchmark in benchmarks}
    for proof in proofs_of(plan.selection, benchmarks):
        yield attrs.evolve(proof, benchmark_hash=hashes[proven_name(proof.name)])


def _scored_arms(plan: Plan, benchmark: BoundBenchmark) -> list[ArmConfig]:
    """The runs scored on an entry: none where it is kept for those that confirm a winner."""
    name = proven_name(benchmark.name)
    entry = next(entry for entry in plan.experiment.metadata.benchmarks if entry.label == name)
    return [arm for arm in plan.arms if is_scored(plan, arm, entry)]


def _count_untrained(
    plan: Plan, benchmark: BoundBenchmark, scored: Sequence[ArmConfig], reused: Collection[str]
) -> int:
    """Starting weights are scored once for all arms that have them in common, and not if the scores of one are reused."""
    keys: dict[bool, set[str]] = {True: set(), False: set()}
    for arm in scored:
        if scores_untrained(plan, arm):
            key = untrained_key(arm, benchmark, plan.registry, seeds_of(plan, arm))
            keys[arm.run_id in reused].add(key)
    return len(keys[False] - keys[True])


def _rollout_costs(
    benchmark: BoundBenchmark, arms: Sequence[PlannedArm], evidence: Evidence
) -> tuple[float, float, float | None] | None:
    """Tokens, seconds and US dollars of one rollout, by the newest scoring on record of these tasks by such models, made again."""
    wanted = {(arm.model, arm.backend) for arm in arms}
    for scoring in evidence.scorings(benchmark.benchmark_hash):
        past, made = scoring.arm.run, scoring.evaluation
        rollouts = made.scored + made.no_score
        same = (past["model"]["name"], past["backend"]["kind"]) in wanted
        if not same or made.cached or not rollouts:
            continue
        used = made.usage + made.judged
        return _tokens(used) / rollouts, made.seconds / rollouts, _cost(used, rollouts)
    return None


def _tokens(used: Usage) -> int:
    return used.prompt_tokens + used.completion_tokens


def _cost(used: Usage, rollouts: int) -> float | None:
    return None if used.cost_usd is None or used.without_price else used.cost_usd / rollouts
