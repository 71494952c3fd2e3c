"""The ingredients of an evaluation: everything that a rollout and its score depend on, as JSON values that can be
compared.

An evaluation that can't be fully identified has no key, and the reason why: it is made again each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PluginError
from evsys.optional import declared
from evsys.types import HarborTask, ModelSpec, Policy, Rollout, RolloutLimits
from evsys_record.hashing import digest
from evsys_runtime.config import placeholders
from evsys_runtime.config.agents import load_object, split_path
from evsys_runtime.config.model import AgentConfig, PluginSpec
from evsys_runtime.data.sources import source_hash
from evsys_runtime.evaluation.agents import DEFAULT_AGENT
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.recording import run_rollout

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Renderer, SamplingClient

__all__ = [
    "Trained",
    "ingredients",
    "plugin_facts",
    "rollout_keys",
    "scoring_facts",
    "uncacheable_reason",
    "unidentified",
]


@attrs.frozen(kw_only=True)
class Trained:
    """The evaluated weights: the model and the backend that made them, and their place if they can't be read.

    `place` is (experiment, run, attempt). `registry` is that of plugins.
    """

    model: ModelSpec
    backend: PluginSpec
    renderer: Renderer
    place: tuple[str, str, int]


def uncacheable_reason(benchmark: BoundBenchmark, registry: Registry, trained: Trained | None) -> str | None:
    """Why an entry's results can't be kept; None where they can."""
    if benchmark.inference is None and trained is None:
        return "its model has no name"
    return unidentified(benchmark, registry)


def unidentified(benchmark: BoundBenchmark, registry: Registry) -> str | None:
    """Why two scorings on an entry can't be told to be the same, whatever is scored; None where they can.

    Plugins opt out by `cacheable = False`; a verifier that declares `deterministic = False` has opted out too.
    """
    if benchmark.agent_spec is None and not _is_named(registry, "agent", DEFAULT_AGENT):
        return "its agent has no name"
    if benchmark.inference is not None and benchmark.inference_spec is None:
        return "its model client has no name"
    if _is_object(benchmark.agent_spec):
        return "its agent is an object of unknown state"
    acting = [("agent", benchmark.agent), ("engine", benchmark.engine), ("model client", benchmark.inference)]
    for what, plugin in acting:
        if not declared(plugin, "cacheable", True):
            return f"its {what} can't be cached"
    for name in benchmark.verifier_sources:
        plugin = registry.get("verifier", name)
        if not (declared(plugin, "cacheable", True) and declared(plugin, "deterministic", True)):
            return f"verifier {name!r} may judge the same answer otherwise"
    return None


def ingredients(
    benchmark: BoundBenchmark,
    policy: Policy,
    limits: RolloutLimits,
    *,
    registry: Registry,
    trained: Trained | None,
    snapshot: SamplingClient | None,
) -> dict[str, Any]:
    """All that decides the results of a scoring, but for the tasks and the sample index; `uncacheable_reason` said None.

    Raises:
        PluginError: a plugin can't be looked up.
    """
    by_service = benchmark.inference is not None
    together = limits.wave and not by_service
    brings_tests = any(task.path is not None for task in benchmark.tasks)
    return {
        "model": plugin_facts(registry, "inference_client", benchmark.inference_spec)
        if by_service
        else _weights(trained, snapshot, registry),
        "sampling": attrs.asdict(attrs.evolve(policy.sampling, seed=None)),
        "seed": policy.sampling.seed,
        "system_prompt": policy.system_prompt,
        **_acting_facts(benchmark, registry),
        "max_turns": limits.max_turns,
        "timeout_seconds": limits.timeout_seconds,
        # In fixed waves a sampler's last bits depend on what is sampled alongside; a folder's files are not part of its task.
        "wave": limits.n_concurrent if together else None,
        "tasks": benchmark.benchmark_hash if together or brings_tests else None,
    }


def scoring_facts(benchmark: BoundBenchmark, registry: Registry) -> dict[str, Any]:
    """All that decides how an entry is scored, but for the weights and the seeds; `unidentified` said None.

    Raises:
        PluginError: a plugin can't be looked up.
    """
    return {
        "tasks": benchmark.benchmark_hash,
        "split": benchmark.split,
        "run_every": benchmark.run_every,
        "num_samples": benchmark.num_samples,
        "sampling": attrs.asdict(benchmark.sampling),
        "system_prompt": benchmark.system_prompt,
        "max_turns": benchmark.max_turns,
        "model": plugin_facts(registry, "inference_client", benchmark.inference_spec),
        "metrics": {metric.name: source_hash(metric.plugin) for metric in benchmark.metrics},
        **_acting_facts(benchmark, registry),
    }


def _acting_facts(benchmark: BoundBenchmark, registry: Registry) -> dict[str, Any]:
    """Who acts, where, and who judges that."""
    return {
        "agent": _agent_facts(registry, benchmark.agent_spec),
        "engine": plugin_facts(registry, "rollout_engine", benchmark.engine_spec),
        "environment": _environment_facts(registry, benchmark.environment),
        "verifiers": dict(benchmark.verifier_sources),
        "rollouts": [source_hash(run_rollout), source_hash(Rollout)],
    }


def rollout_keys(tasks: Sequence[HarborTask], num_samples: int) -> dict[tuple[str, int], str]:
    """The key of each rollout within its scoring, by task and sample: the task's place, from which its seed comes, the
    sample index, the task's id, and the hash of what it says.
    """
    return {
        (task.task_id, sample): f"{index}/{sample}/{content}"
        for index, task in enumerate(tasks)
        for content in (f"{task.task_id}/{digest(task)[7:]}",)
        for sample in range(num_samples)
    }


def plugin_facts(registry: Registry, kind: str, spec: PluginSpec | None) -> dict[str, Any] | None:
    """A plugin by its name, version, source and params; the values that `${NAME}` represents only as a hash."""
    if spec is None:
        return None
    entry = registry.find(kind, spec.kind)
    return {
        "name": entry.qualified,
        "version": None if entry.local else str(entry.version),
        "code": source_hash(registry.get(kind, spec.kind)),
        **_params(spec.params),
    }


def _agent_facts(registry: Registry, spec: AgentConfig | None) -> dict[str, Any] | None:
    if spec is None or spec.import_path is None:
        kind = (spec.kind if spec is not None else None) or DEFAULT_AGENT
        return plugin_facts(registry, "agent", PluginSpec(kind=kind, params=spec.params if spec else {}))
    parts = split_path(spec.import_path)
    code = None if parts is None else source_hash(load_object(*parts))
    return {"import_path": spec.import_path, "code": code, **_params(spec.params)}


def _environment_facts(registry: Registry, spec: PluginSpec | None) -> dict[str, Any] | None:
    """An environment that is neither registered nor an import path is one of its engine's, whose own facts include
    its version.
    """
    if spec is None or _is_named(registry, "environment", spec.kind):
        return plugin_facts(registry, "environment", spec)
    parts = split_path(spec.kind)
    code = None if parts is None else source_hash(load_object(*parts))
    return {"name": spec.kind, "code": code, **_params(spec.params)}


def _is_object(spec: AgentConfig | None) -> bool:
    """True for an agent that an import path names and that is neither a class nor a function."""
    parts = split_path(spec.import_path) if spec is not None and spec.import_path is not None else None
    return parts is not None and not isinstance(load_object(*parts), type | FunctionType)


def _params(params: Mapping[str, Any]) -> dict[str, Any]:
    values = digest(placeholders.resolve(params)) if placeholders.mentions(params) else None
    return {"params": dict(params), "values": values}


def _weights(trained: Trained | None, snapshot: SamplingClient | None, registry: Registry) -> dict[str, Any]:
    if trained is None or snapshot is None:
        raise PluginError("there are no weights to compare")
    content = declared(snapshot, "digest")
    return {
        "base": trained.model.name,
        "lora": attrs.asdict(trained.model.lora),
        "weights": content if isinstance(content, str) else [*trained.place, snapshot.version],
        "backend": plugin_facts(registry, "backend", trained.backend),
        "renderer": [
            trained.model.renderer,
            source_hash(type(trained.renderer)),
            declared(trained.renderer, "fingerprint"),
        ],
    }


def _is_named(registry: Registry, kind: str, name: str) -> bool:
    try:
        registry.find(kind, name)
    except PluginError:
        return False
    return True
