"""An arm's identity: the hash of everything that can change its result, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys import Registry
from evsys_record.hashing import digest
from evsys_record.leaves import IGNORED_BACKEND_PARAMS, IGNORED_CLIENT_PARAMS, IGNORED_RUN_KEYS
from evsys_runtime.config.model import RunConfig
from evsys_runtime.config.roles import ROLES
from evsys_runtime.data.sources import source_hash

__all__ = ["arm_identity", "plugin_versions"]


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
