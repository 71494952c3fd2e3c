"""A benchmark entry bound to everything that scores it: tasks, verifiers, metrics, agent, engine. Nothing is spent yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys.errors import ConfigError, DataError, PluginError, Problem
from evsys.optional import declared
from evsys.types import HarborTask, SamplingParams
from evsys.types.rollouts import MOST_TURNS
from evsys_record.hashing import digest
from evsys_runtime.config import placeholders
from evsys_runtime.config.benchmarks import with_clients
from evsys_runtime.config.engines import engine_kind, engine_problems
from evsys_runtime.config.harness import Harness
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.data.equal_tasks import clusters_of, first_alike
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.sources import source_hash
from evsys_runtime.data.task_limit import limit_tasks
from evsys_runtime.evaluation.agents import HarnessAgent, resolve_agent
from evsys_runtime.evaluation.metrics import BoundMetric, bind_metric
from evsys_runtime.evaluation.verify import BoundVerifier, Verifiers, bound_verifiers, unjudgeable
from evsys_stats.ranges import Range, hull

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Agent, InferenceClient, RolloutEngine

__all__ = ["ApiModel", "BoundBenchmark", "bind_benchmark", "load_benchmark", "with_harness"]

type Pull = Callable[[str], str | Path | Iterable[Mapping[str, Any]]]
"""Finds the tasks of a stored benchmark by its id or name: a file, a folder, or rows."""

DEFAULT_METRICS = ("mean_reward",)
MOST_PROBLEMS = 20


@attrs.frozen(kw_only=True)
class ApiModel:
    """A model to compare with, and the client that it is asked through."""

    name: str
    client: InferenceClient
    spec: PluginSpec | None = None


@attrs.frozen(kw_only=True)
class BoundBenchmark:
    """One benchmark entry, ready to be evaluated any number of times.

    `environment` is that of agents, with `${NAME}` in its params not put in yet. `inference` answers instead of the
    trained model if the entry names a client, `models` are evaluated alongside it. `reward_range` is what the
    verifiers declare, None if one doesn't. `benchmark_hash` covers the evaluated tasks, `verifier_hash` the source
    of every verifier that they name, or that those call. `warnings` are those of verifiers and clients about
    results. `agent_spec`, `engine_spec` and `inference_spec` are the specs of agent, engine and client; None if
    none was named. `max_turns` is the number of answers announced to agents.
    """

    name: str
    tasks: tuple[HarborTask, ...]
    agent: Agent
    engine: RolloutEngine
    metrics: tuple[BoundMetric, ...]
    split: Literal["val", "test"] = "val"
    run_every: int | None = None
    num_samples: int = 1
    sampling: SamplingParams = attrs.field(factory=SamplingParams)
    system_prompt: str | None = None
    max_turns: int = MOST_TURNS
    n_concurrent: int = 64
    breakdown_keys: tuple[str, ...] = ()
    cluster_key: str | None = None
    environment: PluginSpec | None = None
    inference: InferenceClient | None = None
    models: tuple[ApiModel, ...] = ()
    reward_range: Range | None = None
    benchmark_hash: str | None = None
    verifier_hash: str | None = None
    verifier_sources: Mapping[str, str] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()
    agent_spec: AgentConfig | None = None
    engine_spec: PluginSpec | None = None
    inference_spec: PluginSpec | None = None

    @property
    def phase(self) -> str:
        """The part of the record that its scorings go to."""
        return "validation" if self.split == "val" else "test"

    @cached_property
    def _firsts(self) -> dict[str, str]:
        return first_alike(self.tasks)

    @property
    def clusters(self) -> dict[str, str]:
        """The cluster of each task that has one, by `cluster_key` or because it is like another; empty if all are independent."""
        return clusters_of(self.tasks, self.cluster_key, self._firsts)

    @property
    def copies(self) -> dict[str, str]:
        """For each task that asks the same or nearly the same as an earlier one, that one."""
        return {task: first for task, first in self._firsts.items() if task != first}

    @property
    def labels(self) -> dict[str, dict[str, str]]:
        """For each breakdown key the label of each task that has one."""
        return {key: self._labels(key) for key in self.breakdown_keys}

    def _labels(self, key: str) -> dict[str, str]:
        return {task.task_id: str(task.metadata[key]) for task in self.tasks if key in task.metadata}

    def metric(self, name: str) -> BoundMetric:
        """The metric of this name.

        Raises:
            KeyError: it isn't among the entry's metrics.
        """
        return {metric.name: metric for metric in self.metrics}[name]


def load_benchmark(
    entry: BenchmarkConfig,
    *,
    registry: Registry,
    project_root: Path,
    pull: Pull | None = None,
    agent: AgentConfig | None = None,
    path: str = "$",
) -> BoundBenchmark:
    """Read an entry's tasks and bind them.

    Args:
        entry: the entry of the experiment file.
        registry: where verifiers, metrics, agents and engines are looked up.
        project_root: what the entry's `path` starts from.
        pull: finds a stored benchmark; None looks into the project and its cache.
        agent: the run's agent, for an entry without its own.
        path: the place of the entry in the experiment file, under which problems are reported.

    Raises:
        ConfigError: what is wrong with the entry or the verifiers of its tasks, everything at once.
        DataError: the tasks can't be read.
    """
    source, name = _source(entry, project_root, pull or _workspace(project_root), path)
    tasks, content_hash = load_tasks(
        source,
        name=name,
        project_root=project_root,
        transforms=entry.transforms,
        registry=registry,
        resolve=placeholders.resolve,
    )
    with use_scope(DataScope(project_root=project_root)):  # clients look for the project's prices
        return bind_benchmark(entry, tasks, content_hash, registry=registry, agent=agent, path=path)


def _source(
    entry: BenchmarkConfig, project_root: Path, pull: Pull, path: str
) -> tuple[str | Path | Iterable[Mapping[str, Any]], str]:
    """An entry's tasks, and what messages call them. The `path` next to an `id` is read if nothing has that id."""
    wanted = entry.id or (entry.name if entry.path is None else None)
    if wanted is not None:
        try:
            return pull(wanted), entry.label
        except DataError as exc:
            if entry.path is None or not exc.facts.get("unknown"):
                raise
    if entry.path is None:
        message = "the entry has neither `path` nor `id` nor `name`"
        raise ConfigError([Problem(path=path, message=message, hint="give the place of its tasks")])
    return project_root / entry.path, entry.path


def _workspace(project_root: Path) -> Pull:
    from evsys_runtime.data.workspace import Workspace

    return lambda name_or_id: Workspace(project_root).pull_benchmark(name_or_id).path


def bind_benchmark(
    entry: BenchmarkConfig,
    tasks: Sequence[HarborTask],
    content_hash: str | None = None,
    *,
    registry: Registry,
    agent: AgentConfig | None = None,
    path: str = "$",
) -> BoundBenchmark:
    """Bind an entry to tasks read already; see `load_benchmark`.

    Raises:
        ConfigError: all faults at once.
    """
    scored = tuple(limit_tasks(tasks, entry.limit, entry.limit_by, entry.breakdown_keys))
    entry = with_clients(entry, registry)
    problems: list[Problem] = []
    noting = partial(_bound, problems, entry)
    bound_agent = noting(f"{path}.agent", resolve_agent, entry.agent or agent, registry)
    entry = entry if entry.metrics else attrs.evolve(entry, metrics=DEFAULT_METRICS)
    metrics = [
        noting(f"{path}.metrics[{place}]", _metric, spec, entry, registry, label)
        for place, (spec, label) in enumerate(zip(entry.metric_specs, entry.metric_names, strict=True))
    ]
    entry = entry.drawn(max((metric.needs_samples for metric in metrics if metric is not None), default=1))
    harness = isinstance(bound_agent, HarnessAgent)
    engine = noting(f"{path}.engine", _engine, entry, engine_kind(entry, scored, harness=harness), registry)
    if engine is not None:
        problems += engine_problems(engine, entry, scored, harness=harness, place=path)
    inference = noting(f"{path}.inference", _inference, entry.inference, registry)
    models = [
        ApiModel(name=name, client=client, spec=spec)
        for place, name, spec in entry.model_specs
        if (client := noting(f"{path}.{place}", _inference, spec, registry)) is not None
    ]
    problems += _key_problems(entry, scored, path)
    verifiers = bound_verifiers(scored, registry)
    problems += _task_problems(entry, scored, verifiers, path)
    if problems or bound_agent is None or engine is None:
        raise ConfigError(problems)
    sources = _verifier_sources(verifiers, registry)
    return BoundBenchmark(
        name=entry.label,
        tasks=scored,
        agent=bound_agent,
        engine=engine,
        metrics=tuple(metric for metric in metrics if metric is not None),
        split=entry.split,
        run_every=entry.run_every,
        num_samples=entry.num_samples or 1,
        sampling=SamplingParams(max_tokens=entry.max_tokens, temperature=entry.temperature or 0.0),
        system_prompt=placeholders.resolve(entry.system_prompt) or None,
        n_concurrent=entry.n_concurrent,
        breakdown_keys=entry.breakdown_keys,
        cluster_key=entry.cluster_key,
        environment=entry.environment,
        inference=inference,
        models=tuple(models),
        reward_range=_reward_range(scored, verifiers),
        benchmark_hash=_content_hash(content_hash, entry, tasks, scored),
        verifier_hash=digest(sources),
        verifier_sources=sources,
        warnings=_warnings(verifiers, (inference, *(model.client for model in models))),
        agent_spec=entry.agent or agent,
        engine_spec=attrs.evolve(entry.engine_spec, kind=engine_kind(entry, scored, harness=harness)),
        inference_spec=entry.inference,
    )


def with_harness(
    bound: BoundBenchmark, entry: BenchmarkConfig, harness: Harness, registry: Registry, *, path: str = "$"
) -> BoundBenchmark:
    """A bound entry as a run that acts in `harness` is scored on it, by the engine that can run that.

    Tasks with a system message of their own keep it: the harness's system prompt then does not apply to the entry, with a warning.

    Raises:
        ConfigError: the agent can't be made, or the engine that the entry names can't run it.
    """
    if entry.system_prompt is None and harness.system_prompt and any(map(_has_system_message, bound.tasks)):
        harness = attrs.evolve(harness, system_prompt=None)
        told = f"benchmark {bound.name!r}: its tasks have system messages, so the system prompt of the training is not used"
        bound = attrs.evolve(bound, warnings=(*bound.warnings, told))
    scored = harness.scoring(entry)
    if entry.agent is None:  # an agent of the entry's own is led by its own params
        bound = attrs.evolve(bound, max_turns=harness.max_turns or MOST_TURNS)
    if scored == entry:
        return bound
    acting = bound.agent
    if scored.agent != bound.agent_spec:
        acting = resolve_agent(scored.agent, registry, path="$.run.agent")
    acts = isinstance(acting, HarnessAgent)
    spec = attrs.evolve(entry.engine_spec, kind=engine_kind(scored, bound.tasks, harness=acts))
    engine = (
        bound.engine
        if spec == bound.engine_spec
        else _engine(entry, spec.kind, registry, path=f"{path}.engine")
    )
    problems = list(engine_problems(engine, scored, bound.tasks, harness=acts, place=path))
    if problems:
        raise ConfigError(problems)
    return attrs.evolve(
        bound,
        agent=acting,
        agent_spec=scored.agent,
        engine=engine,
        engine_spec=spec,
        environment=scored.environment,
        system_prompt=placeholders.resolve(scored.system_prompt),
    )


def _bound(
    problems: list[Problem], entry: BenchmarkConfig, path: str, make: Callable[..., Any], *arguments: Any
) -> Any:
    """The result of `make`; if it fails, None, and the problem is noted without the values of `${NAME}`."""
    try:
        return make(*arguments, path=path)
    except ConfigError as exc:
        found: Sequence[Problem] = exc.problems
    except PluginError as exc:
        found = [Problem(path=path, message=exc.message, hint=exc.hint)]
    params = [spec.params for spec in _specs(entry, arguments)]
    problems += [
        attrs.evolve(
            problem,
            message=placeholders.redact(problem.message, params),
            hint=problem.hint and placeholders.redact(problem.hint, params),
        )
        for problem in found
    ]
    return None


def _specs(entry: BenchmarkConfig, more: Iterable[Any]) -> list[PluginSpec | AgentConfig]:
    """All plugins that an entry names, and those among `more`."""
    named = (*entry.metric_specs, entry.engine_spec, entry.inference, *more)
    return [spec for spec in named if isinstance(spec, PluginSpec | AgentConfig)]


def _metric(
    spec: PluginSpec, entry: BenchmarkConfig, registry: Registry, label: str, *, path: str
) -> BoundMetric:
    return bind_metric(
        spec.kind,
        placeholders.resolve(spec.params),
        registry=registry,
        num_samples=entry.num_samples,
        pass_threshold=entry.pass_threshold,
        label=label,
        path=path,
    )


def _engine(entry: BenchmarkConfig, kind: str, registry: Registry, *, path: str) -> RolloutEngine:
    params = placeholders.resolve(entry.engine_spec.params)
    engine: RolloutEngine = registry.build("rollout_engine", kind, params, path=f"{path}.params")
    return engine


def _inference(spec: PluginSpec | None, registry: Registry, *, path: str) -> InferenceClient | None:
    if spec is None:
        return None
    params = placeholders.resolve(spec.params)
    client: InferenceClient = registry.build("inference_client", spec.kind, params, path=f"{path}.params")
    return client


def _key_problems(entry: BenchmarkConfig, tasks: Sequence[HarborTask], path: str) -> Iterator[Problem]:
    """Metadata keys that no task has: misspelt, or of another benchmark."""
    known = sorted({key for task in tasks for key in task.metadata})
    named = [(f"{path}.breakdown_keys[{place}]", key) for place, key in enumerate(entry.breakdown_keys)]
    if entry.cluster_key is not None:
        named.append((f"{path}.cluster_key", entry.cluster_key))
    for place, key in named:
        if key not in known:
            hint = f"their metadata has {', '.join(known)}" if known else "the tasks have no metadata"
            yield Problem(
                path=place, message=f"no task of {entry.label!r} has the metadata key {key!r}", hint=hint
            )


def _reward_range(tasks: Sequence[HarborTask], verifiers: Verifiers) -> Range | None:
    if any(task.verifier is None for task in tasks):
        return None
    return hull(v.reward_range if isinstance(v, BoundVerifier) else None for v in verifiers.values())


def _task_problems(
    entry: BenchmarkConfig, tasks: Sequence[HarborTask], verifiers: Verifiers, path: str
) -> list[Problem]:
    """The problems of the tasks themselves: verifiers that can't judge, two system messages."""
    found: list[str] = []
    for task in tasks:
        wrong = unjudgeable(task, verifiers)
        if wrong is not None:
            found.append(f"task {task.task_id!r}: {wrong}")
        if entry.system_prompt is not None and _has_system_message(task):
            found.append(
                f"task {task.task_id!r}: it has a system message, and the entry sets `system_prompt` too"
            )
    problems = [Problem(path=path, message=message) for message in found[:MOST_PROBLEMS]]
    if len(found) > MOST_PROBLEMS:
        problems.append(
            Problem(path=path, message=f"and {len(found) - MOST_PROBLEMS} more problems of tasks")
        )
    return problems


def _has_system_message(task: HarborTask) -> bool:
    return not isinstance(task.instruction, str) and any(m.role == "system" for m in task.instruction)


def _content_hash(
    content_hash: str | None,
    entry: BenchmarkConfig,
    tasks: Sequence[HarborTask],
    scored: Sequence[HarborTask],
) -> str:
    """Of the scored tasks: of the whole file, and of how much of it."""
    whole = content_hash or digest(list(tasks))
    if entry.limit is None or entry.limit >= len(tasks):
        return whole
    if entry.limit_by == "first":
        return digest([whole, entry.limit])
    return digest([whole, [task.task_id for task in scored]])


def _warnings(verifiers: Verifiers, clients: Iterable[Any]) -> tuple[str, ...]:
    """The `warnings` of verifiers and clients, each once."""
    plugins = [one.call for one in verifiers.values() if isinstance(one, BoundVerifier)]
    said = [warning for plugin in (*plugins, *clients) for warning in declared(plugin, "warnings", ())]
    return tuple(dict.fromkeys(said))


def _verifier_sources(verifiers: Verifiers, registry: Registry) -> dict[str, str]:
    """The hash of the source of each verifier that tasks name, and of those which these call."""
    bound = [verifier for verifier in verifiers.values() if isinstance(verifier, BoundVerifier)]
    names = sorted({name for verifier in bound for name in (verifier.name, *verifier.uses)})
    return {name: source_hash(registry.get("verifier", name)) for name in names}
