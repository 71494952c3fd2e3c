"""`Benchmark`: a set of tasks that Python code scores models on, or has an experiment score its arms on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import attrs

from evsys import structure, use_registry
from evsys.errors import ConfigError
from evsys_runtime.background import in_background
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.config.python_config import plain_tree
from evsys_runtime.config.root import find_project_root
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.evaluation.benchmarks import ApiModel, load_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.state.injection import require_client
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.experiment.supervision.event_loop import run_to_end

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient
    from evsys.types import EvaluationResult

__all__ = ["Benchmark", "BenchmarkKeys"]

type _Plugin = PluginSpec | Mapping[str, Any]


class BenchmarkKeys(TypedDict, total=False):
    """The keys of an entry of `metadata.benchmark`, but for its name."""

    path: str | Path | None
    id: str | None
    transforms: Sequence[_Plugin]
    split: Literal["val", "test"]
    tags: Sequence[Literal["val", "test"]]
    run_every: int | None
    metrics: Sequence[str | _Plugin]
    num_samples: int
    max_tokens: int
    temperature: float | None
    limit: int | None
    limit_by: Literal["sample", "first"]
    breakdown_keys: Sequence[str]
    cluster_key: str | None
    n_concurrent: int
    engine: str | _Plugin
    agent: AgentConfig | Mapping[str, Any] | None
    environment: _Plugin | None
    inference: _Plugin | None
    models: Sequence[str | _Plugin]
    model: str | _Plugin | None
    system_prompt: str | None
    pass_threshold: float
    allow_test_selection: bool


class Benchmark:
    """An entry of `metadata.benchmark`, in Python.

    `score` scores a model client on it. `Experiment(cfg, benchmark=...)` scores the arms on it, in place of the
    file's entries.

    Args:
        name: label of the entry; alone, also the name looked up.
        root: the project that its `path` or name is looked up in; by default the experiment's, or that of the working directory.
        **keys: the other keys of an entry, such as `path`, `metrics` and `num_samples`.

    Attributes:
        entry: the entry.

    Raises:
        ConfigError: the keys don't make an entry.
    """

    entry: BenchmarkConfig

    def __init__(
        self, name: str | None = None, *, root: str | Path | None = None, **keys: Unpack[BenchmarkKeys]
    ) -> None:
        given = {key: value for key, value in {"name": name, **keys}.items() if value is not None}
        self._root = None if root is None else Path(root).absolute()
        entry = structure(BenchmarkConfig, plain_tree(given))
        if not (entry.path or entry.id or entry.name):
            raise ConfigError("a benchmark needs a path, an id or a name", hint="Benchmark(path=...)")
        if self._root is not None and entry.path is not None:
            entry = attrs.evolve(entry, path=str(self._root / entry.path))
        self.entry = entry

    def __repr__(self) -> str:
        return f"Benchmark({self.entry.label!r})"

    def score(self, client: InferenceClient, *, seed: int = 0) -> EvaluationResult:
        """Score a model client: each task once per sample, graded by the task's verifier.

        Nothing is recorded; `evsys eval` records the scores of a checkpoint or an API model.

        Args:
            client: generates the completions.
            seed: the seed that samples are derived from.

        Returns:
            The scores by metric. A scoring that failed has the status `failed` and the failure.

        Raises:
            ConfigError, DataError, PluginError: the benchmark can't be read, or its plugins can't be built.
            RuntimeError: an event loop runs in this thread already; `await benchmark.ascore(client)` there.
        """
        return run_to_end(
            partial(self.ascore, client, seed=seed),
            call="Benchmark.score()",
            instead="result = await benchmark.ascore(client)",
        )

    async def ascore(self, client: InferenceClient, *, seed: int = 0) -> EvaluationResult:
        """`score`, inside a running event loop."""
        require_client(client, "Benchmark.score")
        root = find_project_root(Path.cwd() / "_") if self._root is None else self._root
        registry = project_registry()
        import_project_code(root, registry)
        with use_registry(registry), use_scope(DataScope(project_root=root)):
            bound = await in_background(
                partial(load_benchmark, self.entry, registry=registry, project_root=root)
            )
            evaluator = Evaluator([bound], None, seeds=Seeds(base_seed=seed), registry=registry)
            result = await evaluator.score_model(bound, ApiModel(name=bound.name, client=client))
        return attrs.evolve(result, model=None)
