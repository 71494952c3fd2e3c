"""The contents of resolved.json: the experiment as it runs, with all defaults spelled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from evsys.errors import PluginNotFoundError, StoreError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.leaves import short_leaves
from evsys_runtime.collection_pause import collection_paused
from evsys_runtime.config.harness import harness_of
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.resolver import NO_PARAMS, Resolver
from evsys_runtime.evaluation.agents import DEFAULT_AGENT
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.state.seeds import Seeds, seeds_of

__all__ = [
    "ADJUSTABLE",
    "arms_by_id",
    "planned_leaves",
    "recorded_resolution",
    "resolved_arms",
    "resolved_run",
    "resolved_runs",
    "resolved_tree",
    "with_confirm_seeds",
]

ADJUSTABLE = ("budget", "launcher", "max_concurrent_arms", "watchdog")
"""Keys of the file that say how far and how fast, and change no number: these may be set again."""

_ARMS = ("run", "runs", "matrix", "base_run")
_PURPOSES = ("run", "data", "model", "data_order")
"""The seeds that an arm's seed is split into; `data_order` is that of the first epoch."""


def resolved_tree(plan: Plan, benchmarks: Sequence[BoundBenchmark]) -> dict[str, Any]:
    """Every key of the file with its value or its default, `${NAME}` as it is written, and the seeds of every arm.

    Args:
        plan: the plan.
        benchmarks: its entries as they are scored.
    """
    resolver, experiment, metadata = plan.resolver, plan.experiment, plan.experiment.metadata
    judged = {
        "success_metric": str(plan.success) if plan.success else None,
        "direction": plan.success.direction if plan.success else metadata.direction,
    }
    entries = [
        _entry(resolver, entry, bound) for entry, bound in zip(metadata.benchmarks, benchmarks, strict=True)
    ]
    with collection_paused():
        arms = resolved_arms(plan, plan.arms, benchmarks)
    return {
        **resolver.fields(experiment, skip=(*_ARMS, "metadata")),
        "select": {"by": plan.selection.by, "checkpoint": plan.selection.checkpoint},
        "metadata": {**resolver.fields(metadata, skip=("benchmark",)), **judged},
        "benchmarks": entries,
        "arms": arms,
    }


def resolved_arms(
    plan: Plan, arms: Sequence[ArmConfig], benchmarks: Sequence[BoundBenchmark]
) -> list[dict[str, Any]]:
    """Some arms of a plan as `resolved_tree` has them."""
    purposes = (*_PURPOSES, *(f"evaluation/{bound.name}" for bound in benchmarks))
    drawn = cache(lambda seeds: {purpose: seeds(purpose) for purpose in purposes})
    return [_arm(plan, arm, drawn) for arm in arms]


def resolved_runs(plan: Plan, arms: Sequence[ArmConfig] | None = None) -> dict[str, dict[str, Any]]:
    """The config of each arm, or each stage of one, as `resolved_tree` has it, by label; of the plan's own unless others are given."""
    runs: dict[str, dict[str, Any]] = {}
    for arm in plan.arms if arms is None else arms:
        if arm.label not in runs:
            runs[arm.label] = resolved_run(plan.resolver, arm)
    return runs


def planned_leaves(plan: Plan) -> dict[str, dict[str, str]]:
    """The config of each arm as the index has those on record: its values by path, as JSON texts."""
    return {name: short_leaves(run) for name, run in resolved_runs(plan).items()}


def resolved_run(resolver: Resolver, arm: ArmConfig) -> dict[str, Any]:
    """The config of one arm, or of one stage of it, as `resolved_tree` has it."""
    run = resolver.fields(arm.run)
    if arm.stage is not None and arm.stage.before is not None:
        run["begins_with"] = arm.stage.before
    return {
        **run,
        "agent": run["agent"] or _default_plugin(resolver, "agent", DEFAULT_AGENT),
        "name": arm.name,
    }


def _harness(resolver: Resolver, arm: ArmConfig) -> dict[str, Any]:
    """The harness of the run, in training and in the evaluations of entries without one of their own."""
    harness = harness_of(arm.run, resolver.built("algorithm", arm.run.algorithm))
    tree = resolver.fields(harness, skip=("trains",))
    return {**tree, "agent": tree["agent"] or _default_plugin(resolver, "agent", DEFAULT_AGENT)}


def _entry(resolver: Resolver, entry: BenchmarkConfig, bound: BoundBenchmark) -> dict[str, Any]:
    tree = resolver.fields(entry, skip=("tags",))
    if entry.engine_spec.kind == "auto":
        chosen = getattr(bound.engine, "name", None)
        tree["engine"] = _default_plugin(resolver, "rollout_engine", chosen) or tree["engine"]
    return {
        **tree,
        "name": bound.name,
        "tasks": len(bound.tasks),
        "hash": bound.benchmark_hash,
        "reward_range": None if bound.reward_range is None else list(bound.reward_range),
    }


def _arm(plan: Plan, arm: ArmConfig, drawn: Callable[[Seeds], dict[str, int]]) -> dict[str, Any]:
    seeds = seeds_of(plan, arm)
    return {
        "run_id": arm.run_id,
        "arm": arm.name,
        "repeat": arm.repeat,
        **({} if arm.stage is None else {"stage": arm.stage.label}),
        "deterministic": arm.deterministic,
        **({} if arm.purpose == "candidate" else {"purpose": arm.purpose}),
        "base_seed": seeds.base_seed,
        "seeds": dict(drawn(seeds)),
        "harness": _harness(plan.resolver, arm),
        "run": resolved_run(plan.resolver, arm),
    }


def _default_plugin(resolver: Resolver, kind: str, name: Any) -> dict[str, Any] | None:
    """A plugin that no one named, in full; None where none is installed under its name."""
    try:
        return resolver.plugin(kind, name, NO_PARAMS) if isinstance(name, str) else None
    except PluginNotFoundError:
        return None


def with_confirm_seeds(plan: Plan, seeds: int | None) -> Plan:
    """The plan with the number of confirmation seeds chosen; a number in the file is kept."""
    experiment = plan.experiment
    if seeds is None or experiment.confirm is None or experiment.confirm.seeds is not None:
        return plan
    confirm = attrs.evolve(experiment.confirm, seeds=seeds)
    return attrs.evolve(plan, experiment=attrs.evolve(experiment, confirm=confirm))


def recorded_resolution(record: ExperimentRecord) -> dict[str, Any] | None:
    """The resolved experiment when it began; None if it was killed before writing it, or the file is damaged."""
    path = record.directory / "resolved.json"
    if not path.exists():
        return None
    try:
        tree = read_json(path)
        arms_by_id(tree)
    except (StoreError, KeyError, TypeError, AttributeError):
        return None
    return tree


def arms_by_id(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Arms by their ids, so that a difference shows which; benchmarks without their hashes, which are compared before."""
    # The harness follows from the run; older records don't have it.
    arms = {arm["run_id"]: {k: v for k, v in arm.items() if k != "harness"} for arm in tree["arms"]}
    unhashed = [{k: v for k, v in entry.items() if k != "hash"} for entry in tree["benchmarks"]]
    entries = {entry["name"]: entry for entry in unhashed}
    apart = ("format", "arms", "benchmarks", *ADJUSTABLE)
    rest = {key: value for key, value in tree.items() if key not in apart}
    return {**rest, "arms": arms, "benchmarks": entries}
