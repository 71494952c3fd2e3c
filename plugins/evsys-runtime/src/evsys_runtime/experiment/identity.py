"""An arm's identity: the hash of everything that can change its result, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys import Registry
from evsys_runtime.config.model import RunConfig
from evsys_runtime.data.sources import source_hash
from evsys_runtime.record.hashing import digest

__all__ = ["arm_identity", "plugin_versions"]

IGNORED_RUN_KEYS = frozenset({"name", "tags"})
"""What a run may be called changes nothing."""

IGNORED_BACKEND_PARAMS = frozenset(
    {"base_url", "api_key_env", "api_key", "n_workers", "num_workers", "project_id"}
)
"""Where a backend is and how it is reached changes nothing."""


def arm_identity(
    run: Mapping[str, Any],
    *,
    seed: int,
    data_hash: str,
    weights: Mapping[str, Any] | None = None,
    benchmark_hashes: Mapping[str, str],
    plugin_versions: Mapping[str, str],
) -> str:
    """`sha256:...` of the expanded run with the hashes of its data and benchmarks and the versions of its plugins.

    Name, tags, description, concurrency, addresses, keys and output_dir don't enter.
    """
    relevant = {key: value for key, value in run.items() if key not in IGNORED_RUN_KEYS and value is not None}
    backend = relevant.get("backend")
    if isinstance(backend, Mapping) and isinstance(backend.get("params"), Mapping):
        params = {k: v for k, v in backend["params"].items() if k not in IGNORED_BACKEND_PARAMS}
        relevant["backend"] = {**backend, "params": params}
    return digest(
        {
            "run": relevant,
            "seed": seed,
            "data": data_hash,
            "weights": dict(weights) if weights is not None else None,
            "benchmarks": dict(benchmark_hashes),
            "plugins": dict(plugin_versions),
        }
    )


def plugin_versions(registry: Registry, run: RunConfig) -> dict[str, str]:
    """The version of each plugin that makes a run's result; of the project's own code the hash of its source."""
    named = [("algorithm", run.algorithm.kind), ("backend", run.backend.kind)]
    named += [("transform", spec.kind) for spec in run.data.transforms]
    entries = [registry.find(kind, name) for kind, name in named]
    return {
        f"{entry.kind}:{entry.qualified}": source_hash(registry.get(entry.kind, entry.qualified))
        if entry.local
        else str(entry.version)
        for entry in entries
    }
