"""The benchmark entries of a file: what they name is there, and what they ask for can be done."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry
from evsys._plugins.refusals import closest
from evsys.errors import (
    PLUGIN_FAILURES,
    DataError,
    PluginConflictError,
    PluginError,
    PluginNotFoundError,
    Problem,
    StoreError,
)
from evsys.optional import declared
from evsys.types import HarborTask
from evsys_record import is_proof
from evsys_runtime.config import files, paths, trees
from evsys_runtime.config.agents import check_agent, is_harness
from evsys_runtime.config.building import Plugins, verifier_params
from evsys_runtime.config.engines import engine_kind, engine_problems, harbor_reason
from evsys_runtime.config.later import NOT_YET, later_keys
from evsys_runtime.config.metrics import needs_rollouts, samples_needed, try_metric
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.plan import ScoredTasks
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.tasks import Tasks, load_tasks
from evsys_runtime.config.transforms import check_transform
from evsys_runtime.data.equal_tasks import clusters_of, first_alike
from evsys_runtime.data.task_limit import limit_tasks
from evsys_runtime.data.workspace import Workspace

__all__ = ["Benchmarks", "Size", "fill_samples", "sample_count_problem", "with_clients", "wrong_direction"]

_MOST_TOLD = 10
"""The most kinds of task problems to report."""

_ANY_REWARD = (0.0, 1.0)
"""The lowest and highest reward of verifiers that declare none."""

_ENGINE_OPTIONS = ("max_tokens", "temperature", "n_concurrent", "system_prompt", "num_samples")


@attrs.frozen(kw_only=True)
class Size:
    """How many tasks an entry at `place` has, how many of them are scored, and into how many clusters those fall.

    `distinct` counts equal and nearly equal tasks once.
    """

    place: str
    source: str
    tasks: int
    scored: int
    clusters: int
    distinct: int


@attrs.define(kw_only=True, eq=False)
class Benchmarks:
    """Checks entries one by one. `data_errors` are those of task files, which are not faults of the experiment
    file; `sizes` has, by label, how many tasks there are of those entries that can be read, `tasks` the scored
    ones.
    """

    reader: Reader
    plugins: Plugins
    workspace: Workspace
    data_errors: list[DataError] = attrs.field(factory=list)
    sizes: dict[str, Size] = attrs.field(factory=dict)
    tasks: dict[str, ScoredTasks] = attrs.field(factory=dict)
    _labels: dict[str, str] = attrs.field(factory=dict)
    _scored: Sequence[HarborTask] = ()
    _rewards: tuple[float, float] = _ANY_REWARD

    @property
    def root(self) -> Path:
        """The project root."""
        return self.workspace.root

    def check(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        """Report what is wrong with one entry at `place` and was made from `tree`."""
        for path, hint in later_keys("benchmark", tree, place):
            self.reader.add(path, NOT_YET, hint)
        self._scored, self._rewards = (), _ANY_REWARD
        self._source(entry, place)
        self._split(entry, tree, place)
        label = entry.label
        if is_proof(label):
            self.reader.add(
                f"{place}.name", f"{label!r} is the name of another entry's proof", "end the name differently"
            )
        if label in self._labels:
            self.reader.add(
                place,
                f"two entries are called {label!r}, the other at {self._labels[label]}",
                "give it a 'name'",
            )
        self._labels.setdefault(label, place)
        self._metrics(entry, tree, place)
        harness = False
        if entry.agent is not None:
            agent = check_agent(self.plugins, entry.agent, f"{place}.agent")
            self.reader.add_all(agent.problems)
            harness = is_harness(agent.plugin)
        self._engine(entry, tree, place, harness=harness)
        if entry.inference is not None:
            where = f"{place}.inference"
            spec = entry.inference
            built = self.plugins.build("inference_client", spec.kind, spec.params, where)
            self.reader.add_all(built.problems)
            self._warnings(built.plugin)
        self._models(entry, tree, place)
        if entry.temperature == 0 and (entry.num_samples or 1) > 1:
            self.reader.report.warn(
                f"benchmark {label!r}: at temperature 0 all {entry.num_samples} samples of a task are the same"
            )

    def _models(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        """API models to compare with: their clients can be made, and results can distinguish them."""
        seen: set[str] = set()
        for where, label, spec in entry.model_specs:
            only_named = isinstance(trees.get(tree, paths.parse(where)), str)
            if only_named and label != spec.kind and not os.environ.get("OPENAI_BASE_URL"):
                clients = [known.name for known in self.plugins.registry.entries("inference_client")]
                self.reader.add(
                    f"{place}.{where}",
                    f"no inference_client is called {label!r}, and OPENAI_BASE_URL, where a model of that name would be, isn't set",
                    closest(label, clients)
                    or "export OPENAI_BASE_URL=..., or write {kind: openai_compatible, params: {model: ..., base_url: ...}}",
                )
                continue
            built = self.plugins.build("inference_client", spec.kind, spec.params, f"{place}.{where}")
            self.reader.add_all(built.problems)
            self._warnings(built.plugin)
            if label in seen:
                self.reader.add(f"{place}.{where}", f"{label!r} is scored already", "remove one")
            seen.add(label)

    def _source(self, entry: BenchmarkConfig, place: str) -> None:
        if not (entry.path or entry.id or entry.name):
            self.reader.add(place, "names no tasks", "give 'path', 'id', or the 'name' of a stored benchmark")
        elif entry.path and not entry.id:
            self._file(entry, entry.path, place)
        else:
            self._check_stored(entry, place)

    def _file(self, entry: BenchmarkConfig, path: str, place: str) -> None:
        wrong = files.missing(path, self.root, folder=True)
        if wrong:
            self.reader.add(f"{place}.path", *wrong)
        else:
            self._tasks(entry, self.root / path, path, f"{place}.path")

    def _check_stored(self, entry: BenchmarkConfig, place: str) -> None:
        """Tasks by id or name are the project's own, were pulled before, or come from a store of versions.

        A `path` next to an `id` is read if none has it.
        """
        where = f"{place}.id" if entry.id else f"{place}.name"
        ref = entry.id or entry.name or ""
        try:
            found = self.workspace.find_benchmark(ref)
        except StoreError as exc:
            if entry.path and not exc.facts.get("reachable"):
                self.reader.report.warn(f"benchmark {ref!r}: {exc.message}; {entry.path} is read instead")
                self._file(entry, entry.path, place)
            else:
                self.reader.add(where, exc.message, exc.hint)
            return
        except DataError as exc:
            if entry.path and exc.facts.get("unknown"):
                self.reader.report.warn(
                    f"benchmark {entry.id!r} isn't in the project or its cache; {entry.path} is read instead"
                )
                self._file(entry, entry.path, place)
            else:
                hint = f"{exc.hint}; or give a 'path' as fallback" if exc.facts.get("unknown") else exc.hint
                self.reader.add(where, exc.message, hint)
            return
        pin = self.workspace.pins.get("benchmarks", ref)
        if pin is not None and pin.get("split") == "test" and entry.split != "test":
            message = (
                f"benchmark {ref!r} is a test set in the data store, and the entry is split: {entry.split}"
            )
            self.reader.report.warn(f"{message}: what is chosen by its scores has seen the test")
        name = found.ref if found.in_cache else found.path.relative_to(self.root).as_posix()
        if not found.in_cache and (wrong := files.missing(name, self.root)):
            self.reader.add(where, *wrong)
        else:
            self._tasks(entry, found.path, name, where)

    def _split(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        if len(set(entry.tags)) > 1:
            self.reader.add(f"{place}.tags", "an entry is 'val' or 'test', not both", "keep one")
        elif entry.tags and tree.get("split", entry.tags[0]) != entry.tags[0]:
            self.reader.add(
                f"{place}.tags",
                f"'tags' says {entry.tags[0]!r} and 'split' {tree['split']!r}",
                "keep 'split'",
            )

    def _metrics(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        seen: set[str] = set()
        for index, (spec, name) in enumerate(zip(entry.metric_specs, entry.metric_names, strict=True)):
            where = f"{place}.metrics[{index}]"
            if name in seen:
                self.reader.add(where, f"the metric {name!r} is listed twice", "keep one")
                continue
            seen.add(name)
            extra = {"pass_threshold": entry.pass_threshold}
            built = self.plugins.build("metric", spec.kind, spec.params, where, extra=extra)
            short = isinstance(entry.metrics[index], str)
            for problem in built.problems:
                path = where if short and problem.path == f"{where}.kind" else problem.path
                self.reader.add(path, problem.message, problem.hint)
            direction = declared(built.plugin, "direction")
            if direction not in {None, "max", "min"}:
                self.reader.add(where, *wrong_direction(spec.kind, direction))
            needed = samples_needed(built.plugin, spec.kind)
            if entry.num_samples is not None and needed > entry.num_samples:
                self.reader.add(where, *sample_count_problem(name, needed, entry.num_samples))
            if built.plugin is not None:
                self._try_metric(built.plugin, name, where, max(needed, entry.num_samples or 1))

    def _try_metric(self, plugin: Any, name: str, where: str, samples: int) -> None:
        """Call it on made-up rewards. Rollouts may lack what it looks for in real ones, so there a failure is a warning."""
        wrong = try_metric(plugin, name, where, samples=samples, rewards=self._rewards)
        if wrong is not None and needs_rollouts(plugin):
            self.reader.report.warn(f"{wrong.message}; {wrong.hint}")
        elif wrong is not None:
            self.reader.add(wrong.path, wrong.message, wrong.hint)

    def _engine(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str, *, harness: bool) -> None:
        """The engine is there, takes its params, and can run what the entry asks for."""
        kind = engine_kind(entry, self._scored, harness=harness)
        where = f"{place}.engine"
        built = self.plugins.build("rollout_engine", kind, entry.engine_spec.params, where)
        auto = entry.engine_spec.kind == "auto"
        why = harbor_reason(entry.environment, self._scored, harness=harness) if auto else None
        for problem in built.problems:
            path = where if isinstance(entry.engine, str) else problem.path
            self.reader.add(path, f"{why}: {problem.message}" if why else problem.message, problem.hint)
        if built.plugin is None:
            return
        self.reader.add_all(
            tuple(engine_problems(built.plugin, entry, self._scored, harness=harness, place=place))
        )
        honours = declared(built.plugin, "honours") if entry.engine_spec.kind != "auto" else None
        asked = {*tree, *(["num_samples"] if (entry.num_samples or 1) > 1 else [])}
        for option in _ENGINE_OPTIONS:
            if honours is not None and option in asked and option not in honours:
                self.reader.add(
                    f"{place}.{option}", f"engine {kind!r} would ignore {option!r}", "leave it out"
                )

    def _tasks(self, entry: BenchmarkConfig, path: Path, name: str, where: str) -> None:
        """Read the tasks, and look at those scored. `where` is the key that names them."""
        place = where.rpartition(".")[0]
        problems = [
            problem
            for index, spec in enumerate(entry.transforms)
            for problem in check_transform(
                self.plugins, spec.kind, spec.params, f"{place}.transforms[{index}]", self.root
            )
        ]
        if problems:
            self.reader.add_all(problems)
            return
        try:
            found = load_tasks(path, name, self.root, entry.transforms, self.plugins.registry)
        except DataError as exc:
            self.data_errors.append(exc)
            problem = Problem(
                path=where, message=exc.message, hint=exc.hint, source=exc.source, line=exc.line
            )
            self.reader.report.add(problem)
            return
        scored = self._scored = limit_tasks(found.tasks, entry.limit, entry.limit_by, entry.breakdown_keys)
        self._verifiers(found, name, where)
        self._instructions(entry, scored, found, name, where)
        self._metadata(entry, scored, name, place)
        self.tasks[entry.label] = ScoredTasks(
            tasks=scored, content_hash=found.content_hash if entry.limit is None else None
        )
        firsts = first_alike(scored)
        clusters = clusters_of(scored, entry.cluster_key, firsts)
        self.sizes[entry.label] = Size(
            place=place,
            source=name,
            tasks=len(found.tasks),
            scored=len(scored),
            clusters=len(set(clusters.values())) + len(scored) - len(clusters),
            distinct=len(set(firsts.values())),
        )

    def _instructions(
        self, entry: BenchmarkConfig, scored: Sequence[HarborTask], found: Tasks, name: str, where: str
    ) -> None:
        """No one says twice who the model is."""
        if entry.system_prompt is not None:
            both = [task.task_id for task in scored if _has_system_message(task)]
            message = "it has a system message, and the entry sets 'system_prompt' too"
            self._report(found, [(task_id, message) for task_id in both], name, where)

    def _metadata(self, entry: BenchmarkConfig, scored: Sequence[HarborTask], name: str, place: str) -> None:
        keys = [(f"{place}.breakdown_keys[{index}]", key) for index, key in enumerate(entry.breakdown_keys)]
        keys += [(f"{place}.cluster_key", entry.cluster_key)] if entry.cluster_key else []
        for where, key in keys:
            has = sum(key in task.metadata for task in scored)
            if not has:
                known = sorted({name for task in scored for name in task.metadata})
                hint = closest(key, known) or f"their metadata has: {', '.join(known) or 'nothing'}"
                which = "scored task" if entry.limit is not None else "task"
                self.reader.add(where, f"no {which} of {name} has {key!r} in its metadata", hint)
            elif has < len(scored):
                self.reader.report.warn(
                    f"benchmark {entry.label!r}: {len(scored) - has} tasks have no {key!r}"
                )

    def _verifiers(self, found: Tasks, name: str, where: str) -> None:
        """Each distinct verifier of the tasks is there, takes its params, and can judge by what they expect."""
        judged: dict[tuple[str, str], tuple[Any, str | None]] = {}
        wrong_tasks: list[tuple[str, str]] = []
        for task in found.tasks:
            spec = task.verifier
            if spec is None:
                continue
            key = (spec.name, trees.canonical(spec.params))
            if key not in judged:
                judged[key] = self._verifier(spec.name, spec.params)
            plugin, wrong = judged[key]
            if wrong is None and callable(check := getattr(plugin, "check", None)):
                try:
                    check(spec.expected)
                except PLUGIN_FAILURES as exc:
                    wrong = f"verifier {spec.name!r} can't judge by what it expects: {exc}"
            if wrong is not None:
                wrong_tasks.append((task.task_id, wrong))
        self._rewards = _reward_range([plugin for plugin, _ in judged.values()])
        self._report(found, wrong_tasks, name, where)

    def _report(self, found: Tasks, wrong: Sequence[tuple[str, str]], name: str, where: str) -> None:
        """Report the problems of tasks, each once, at the first task that has it."""
        by_message: dict[str, list[str]] = {}
        for task_id, message in wrong:
            by_message.setdefault(message, []).append(task_id)
        told = list(by_message.items())
        for message, ids in told[:_MOST_TOLD]:
            more = f" (and {len(ids) - 1} more tasks like it)" if len(ids) > 1 else ""
            self._task_problem(found, ids[0], f"task {ids[0]!r}: {message}{more}", name, where)
        if len(told) > _MOST_TOLD:
            left = sum(len(ids) for _, ids in told[_MOST_TOLD:])
            more = f"{left} more tasks from here on have problems"
            self._task_problem(found, told[_MOST_TOLD][1][0], more, name, where)

    def _verifier(self, name: str, params: Mapping[str, Any]) -> tuple[Any, str | None]:
        with suppress(PluginError):  # reported where it is built
            params = verifier_params(self.plugins.registry, name, params)
        built = self.plugins.build("verifier", name, params, "$")
        if built.problems:
            texts = [
                f"{problem.path.removeprefix('$.')}: {problem.message}"
                if ".params." in problem.path
                else problem.message
                for problem in built.problems
            ]
            hints = [problem.hint for problem in built.problems if problem.hint]
            return None, "; ".join([*texts, *hints])
        self._warnings(built.plugin)
        return built.plugin, None

    def _warnings(self, plugin: Any) -> None:
        """The warnings of a verifier or a client about results."""
        for warning in declared(plugin, "warnings", ()):
            self.reader.report.warn(warning)

    def _task_problem(self, found: Tasks, task_id: str, message: str, name: str, where: str) -> None:
        line = found.line_of(task_id)
        self.reader.report.add(Problem(path=where, message=message, source=name, line=line))


def _reward_range(verifiers: Sequence[Any]) -> tuple[float, float]:
    """The lowest and highest reward of these verifiers, if all declare finite ones; else those of most."""
    try:
        ends = [tuple(map(float, verifier.reward_range)) for verifier in verifiers]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
    except (AttributeError, TypeError, ValueError):  # none declared, or no range: reported where it is used
        return _ANY_REWARD
    return (low, high) if math.isfinite(high - low) else _ANY_REWARD


def _has_system_message(task: HarborTask) -> bool:
    return not isinstance(task.instruction, str) and any(said.role == "system" for said in task.instruction)


def wrong_direction(metric: str, direction: object) -> tuple[str, str]:
    """Message and hint for a metric whose direction is none."""
    return f"the metric {metric!r} declares the direction {direction!r}", "it is 'max' or 'min'"


def with_clients(entry: BenchmarkConfig, registry: Registry) -> BenchmarkConfig:
    """An entry whose API models are all clients, also those that it only names."""

    def is_client(name: str) -> bool:
        try:
            registry.find("inference_client", name)
        except PluginConflictError:
            return True  # reported where the client is built
        except PluginNotFoundError:
            return False
        return True

    return entry.with_clients(is_client)


def fill_samples(entry: BenchmarkConfig, plugins: Plugins) -> BenchmarkConfig:
    """An entry that lists metrics with as many samples as they need, unless it says how many."""
    needed = (
        samples_needed(plugins.build("metric", spec.kind, spec.params, "$").plugin, spec.kind)
        for spec in entry.metric_specs
    )
    return entry.drawn(max(needed, default=1))


def sample_count_problem(metric: str, needed: int, given: int) -> tuple[str, str]:
    """Message and hint for a metric that needs more samples than there are."""
    message = f"{metric} needs {needed} samples of each task, and 'num_samples' is {given}"
    return message, f"set num_samples: {needed} or more"
