"""The first contents of experiment.json and run.json: the requested experiment, and how it was launched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.optional import declared
from evsys_record.provenance import collect
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.task_contents import task_contents
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.state.options import injected_names
from evsys_runtime.experiment.state.secrets import redact_override

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.options import Options

__all__ = [
    "KEPT_OPTIONS",
    "STORED",
    "arm_facts",
    "asked_facts",
    "benchmark_facts",
    "experiment_facts",
    "hidden_overrides",
    "is_simulated",
    "launch_facts",
    "run_facts",
]

KEPT_OPTIONS = ("fail_fast", "skip_grader_check", "no_cache")
"""Options that a resumed experiment has as it began, unless they are given again."""

STORED = "stored_data"
"""The versions that names of stored data meant when the experiment began: `Pins.tree`."""


def experiment_facts(
    plan: Plan, options: Options, benchmarks: Sequence[BoundBenchmark], forks: Path | None
) -> Mapping[str, Any]:
    """The first contents of experiment.json."""
    metadata = plan.experiment.metadata
    beside = plan.project_root / plan.experiment.output_dir / "experiment"
    return {
        "description": plan.experiment.description,
        "hypothesis": metadata.hypothesis,
        "tags": list(metadata.tags),
        "project_goal_id": metadata.project_goal_id,
        "parent_experiment_id": metadata.parent_experiment_id,
        **asked_facts(plan),
        "minimum_effect": metadata.minimum_effect,
        "claim": metadata.claim,
        "margin": metadata.claimed_margin,
        "contrast": None if metadata.contrast is None else attrs.asdict(metadata.contrast),
        "base_seed": plan.experiment.base_seed,
        STORED: dict(plan.stored),
        "overrides": list(map(redact_override, plan.overrides)),
        **benchmark_facts(benchmarks),
        "arms": [arm_facts(arm) for arm in plan.arms],
        "provenance": collect(plan.project_root),
        "launch": launch_facts(beside, plan.project_root, plan.overrides, options, forks),
    }


def benchmark_facts(benchmarks: Sequence[BoundBenchmark]) -> dict[str, Any]:
    """The part of experiment.json about the benchmark entries of an experiment or an evaluation."""
    return {
        "benchmarks": {
            b.name: {"split": b.split, "hash": b.benchmark_hash, "verifier_hash": b.verifier_hash}
            for b in benchmarks
        },
        "task_contents": {b.name: task_contents(b.tasks).as_json for b in benchmarks},
    }


def asked_facts(plan: Plan) -> Mapping[str, Any]:
    """The facts by which a question is recognised, along with those of its benchmark entries."""
    return {
        "success_metric": str(plan.success) if plan.success else None,
        "direction": plan.success.direction if plan.success else None,
        "baseline": plan.experiment.metadata.baseline,
    }


def arm_facts(arm: ArmConfig) -> dict[str, Any]:
    """The part of experiment.json about a planned run."""
    facts = {"run_id": arm.run_id, "arm": arm.name, "repeat": arm.repeat}
    if arm.stage is not None:
        facts["stage"] = arm.stage.label
    return facts if arm.purpose == "candidate" else {**facts, "purpose": arm.purpose}


def run_facts(arm: ArmConfig, *, dry: bool) -> dict[str, Any]:
    """The first contents of run.json."""
    return {
        "arm": arm.name,
        "repeat": arm.repeat,
        **({} if arm.stage is None else {"stage": arm.stage.label, "after": arm.after}),
        "dry": dry,
        "deterministic": arm.deterministic,
    }


def is_simulated(plan: Plan, arm: ArmConfig, facts: Mapping[str, Any]) -> bool:
    """Whether a run's backend only imitates a model, or its server's does, as its run.json says."""
    plugin = plan.registry.get("backend", arm.run.backend.kind)
    return bool(declared(plugin, "simulated", False) or (facts.get("backend") or {}).get("simulated"))


def launch_facts(
    directory: Path, project_root: Path, overrides: Sequence[str], options: Any, forks: Path | None = None
) -> dict[str, Any]:
    """The part of experiment.json about how an experiment was launched, for resuming it.

    Args:
        directory: the experiment's folder, or one alongside it: the project's path is relative to it, so that both
            can move.
        project_root: the start of relative paths of the file.
        overrides: the `--set` options; one with a secret is kept without its value.
        options: an experiment's `Options`.
        forks: the experiment that this one branches off from.
    """
    return {
        "project_root": _way(directory, project_root),
        "forks": None if forks is None else _way(directory, forks),
        "hidden": list(map(overrides_.option, hidden_overrides(overrides))),
        "options": {option: bool(getattr(options, option)) for option in KEPT_OPTIONS},
        "injected": options.train_fn is not None,  # what versions before `injects` read
        "injects": injected_names(options),
    }


def _way(directory: Path, place: Path) -> str:
    """How one gets from a folder to a place."""
    try:
        return Path(os.path.relpath(place, directory)).as_posix()
    except ValueError:  # another drive (Windows)
        return place.as_posix()


def hidden_overrides(overrides: Sequence[str]) -> list[str]:
    """Those of the `--set` options whose values the record doesn't have, since they are secret."""
    return [each for each in overrides if redact_override(each) != each]
