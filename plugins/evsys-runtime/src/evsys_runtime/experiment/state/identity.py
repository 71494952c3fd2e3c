"""An arm's identity: the hash of everything that can change its result, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evsys import Registry
from evsys_record import is_proof
from evsys_record.hashing import digest
from evsys_record.leaves import IGNORED_BACKEND_PARAMS, IGNORED_CLIENT_PARAMS, IGNORED_RUN_KEYS
from evsys_runtime.config.model import RunConfig
from evsys_runtime.config.roles import ROLES
from evsys_runtime.data.sources import source_hash
from evsys_runtime.experiment.state.seeds import seeds_of

if TYPE_CHECKING:
    from evsys_runtime.config.plan import ArmConfig, Plan
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.experiment.state.roles import ArmRole

__all__ = ["arm_identity", "identity_of_arm", "plugin_versions"]


def arm_identity(
    run: Mapping[str, Any],
    *,
    seed: int,
    data_hash: str,
    weights: Mapping[str, Any] | None = None,
    benchmark_hashes: Mapping[str, str],
    plugin_versions: Mapping[str, str],
    roles: Mapping[str, Any] | None = None,
) -> str:
    """`sha256:...` of the expanded run with the hashes of its data and benchmarks and the versions of its plugins.

    Name, tags, description, concurrency, addresses, keys and output_dir don't enter. `weights` are the files that the model starts
    from, `roles` those of its teacher and its reference, by role.
    """
    relevant = {key: value for key, value in run.items() if key not in IGNORED_RUN_KEYS and value is not None}
    relevant |= {
        name: {key: part if key == "model" else _strip_address(part, key) for key, part in role.items()}
        for name in ROLES
        if (role := relevant.get(name)) is not None
    }
    if "backend" in relevant:
        relevant["backend"] = _strip_address(relevant["backend"])
    return digest(
        {
            "run": relevant,
            **({"roles": dict(roles)} if roles else {}),
            "seed": seed,
            "data": data_hash,
            "weights": dict(weights) if weights is not None else None,
            "benchmarks": dict(benchmark_hashes),
            "plugins": dict(plugin_versions),
        }
    )


def identity_of_arm(
    plan: Plan,
    arm: ArmConfig,
    benchmarks: Sequence[BoundBenchmark],
    *,
    data_hash: str,
    weights: Mapping[str, object] | None,
    roles: Sequence[ArmRole] = (),
) -> str:
    """The identity of an arm of a plan.

    Args:
        plan: whose arm it is.
        arm: the arm.
        benchmarks: what it is scored on.
        data_hash: the fingerprint of its rows.
        weights: what tells its starting weights from others; None for those of the base model.
        roles: its second models.
    """
    return arm_identity(
        arm.tree,
        seed=seeds_of(plan, arm)("run"),
        data_hash=data_hash,
        weights=weights,
        benchmark_hashes={b.name: b.benchmark_hash or "" for b in benchmarks if not is_proof(b.name)},
        plugin_versions=plugin_versions(plan.registry, arm.run),
        roles={role.name: role.files for role in roles if role.files is not None},
    )


def _strip_address(backend: Any, key: str = "backend") -> Any:
    if not isinstance(backend, Mapping) or not isinstance(backend.get("params"), Mapping):
        return backend
    ignored = IGNORED_CLIENT_PARAMS if key == "inference" else IGNORED_BACKEND_PARAMS
    params = {k: v for k, v in backend["params"].items() if k not in ignored}
    return {**backend, "params": params}


def plugin_versions(registry: Registry, run: RunConfig) -> dict[str, str]:
    """The version of each plugin that makes a run's result; of the project's own code the hash of its source."""
    named = [("algorithm", run.algorithm.kind), ("backend", run.backend.kind)]
    sources = [run.data, *(run.data.replay.datasets if run.data.replay is not None else ())]
    named += [("transform", spec.kind) for source in sources for spec in source.transforms]
    for role in (run.teacher, run.reference):
        if role is not None and (on := role.own) is not None:
            named.append(("backend" if role.inference is None else "inference_client", on.kind))
    entries = [registry.find(kind, name) for kind, name in named]
    return {
        f"{entry.kind}:{entry.qualified}": source_hash(registry.get(entry.kind, entry.qualified))
        if entry.local
        else str(entry.version)
        for entry in entries
    }
