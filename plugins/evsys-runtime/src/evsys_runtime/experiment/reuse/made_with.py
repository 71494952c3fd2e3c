"""Hashes of all that decides a run's result besides its identity: scoring, selected checkpoint, callbacks."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from evsys_record import is_proof
from evsys_record.hashing import digest
from evsys_record.proofs import proven_name
from evsys_record.provenance import evsys_distributions
from evsys_runtime.config.plan import ArmConfig, CheckpointSelection, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.result_key import plugin_facts, scoring_facts, unidentified

__all__ = ["MADE_WITH", "made_with", "why_never"]

MADE_WITH = "made_with"
"""The key of run.json that has these hashes."""

_OURS = ("evsys-core", "evsys-runtime")
_PLACES = frozenset({"path", "id", "tags"})
"""Keys of an entry that say where its tasks are: the hash of the tasks is compared."""


def made_with(
    plan: Plan, arm: ArmConfig, benchmarks: Sequence[BoundBenchmark], selection: CheckpointSelection
) -> dict[str, str]:
    """Hash all that decides a result besides the identity of its run; keys are words that follow "its".

    Two runs with the same identity and the same hashes are one run. Blocking: reads the source of plugins.

    Args:
        plan: the plan of the arm.
        arm: the arm.
        benchmarks: its entries, in its harness.
        selection: which checkpoint of it counts.

    Raises:
        PluginError: a plugin can't be looked up.
    """
    registry = plan.registry
    entries = {entry.label: entry for entry in plan.experiment.metadata.benchmarks}
    versions = evsys_distributions()
    found = {
        "version of evsys": digest({name: versions.get(name) for name in _OURS}),
        "determinism": digest(arm.deterministic),
        "selected checkpoint": digest(selection),
        "callbacks": digest([plugin_facts(registry, "callback", spec) for spec in plan.experiment.callbacks]),
    }
    for bound in benchmarks:
        entry = attrs.asdict(entries[proven_name(bound.name)])
        told = {key: value for key, value in entry.items() if key not in _PLACES}
        found[f"scores on {bound.name}"] = digest([told, scoring_facts(bound, registry)])
    return found


def why_never(plan: Plan, arm: ArmConfig, benchmarks: Sequence[BoundBenchmark]) -> str | None:
    """Why no run on record can replace a run of this arm; None if one can."""
    if arm.stage is not None:
        return "a stage begins with the weights of the one before it"
    if arm.weights_of is not None:
        return "it trains nothing"
    if plan.search is not None and plan.search.stops:
        return "the search may end it early"
    reasons = (unidentified(bound, plan.registry) for bound in benchmarks if not is_proof(bound.name))
    return next((reason for reason in reasons if reason is not None), None)
