"""The benchmark entries of a file: what they name is there, and what they ask for can be done."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, DataError, Problem
from evsys_runtime.config import files, trees
from evsys_runtime.config.agents import check_agent
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.later import NOT_YET, later_keys
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.tasks import Tasks, load_tasks

__all__ = ["Benchmarks", "samples_needed", "too_few", "wrong_direction"]

_MOST_TASKS = 10
"""How many tasks are told of one by one when they have problems."""

_ENGINE_OPTIONS = ("max_tokens", "temperature", "n_concurrent", "system_prompt", "num_samples")


@attrs.define(kw_only=True, eq=False)
class Benchmarks:
    """Checks entries one by one. `data_errors` are those of task files, which are no fault of the experiment file."""

    reader: Reader
    plugins: Plugins
    root: Path
    has_store: bool
    data_errors: list[DataError] = attrs.field(factory=list)
    _labels: dict[str, str] = attrs.field(factory=dict)

    def check(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        """Report what is wrong with one entry that stands at `place` and was made from `tree`."""
        for path, hint in later_keys("benchmark", tree, place):
            self.reader.add(path, NOT_YET, hint)
        self._source(entry, place)
        self._split(entry, tree, place)
        label = entry.label
        if label in self._labels:
            self.reader.add(
                place,
                f"two entries are called {label!r}, the other at {self._labels[label]}",
                "give it a 'name'",
            )
        self._labels.setdefault(label, place)
        self._metrics(entry, tree, place)
        self._engine(entry, tree, place)
        if entry.agent is not None:
            self.reader.add_all(check_agent(self.plugins, entry.agent, f"{place}.agent").problems)
        if entry.inference is not None:
            where = f"{place}.inference"
            spec = entry.inference
            built = self.plugins.build("inference_client", spec.kind, spec.params, where)
            self.reader.add_all(built.problems)
        if entry.temperature == 0 and entry.num_samples > 1:
            self.reader.report.warn(
                f"benchmark {label!r}: at temperature 0 all {entry.num_samples} samples of a task are the same"
            )

    def _source(self, entry: BenchmarkConfig, place: str) -> None:
        if entry.path and entry.id:
            self.reader.add(f"{place}.id", "both 'path' and 'id' say where the tasks are", "keep one")
        elif not (entry.path or entry.id or entry.name):
            self.reader.add(place, "names no tasks", "give 'path', 'id', or the 'name' of a stored benchmark")
        elif entry.path:
            wrong = files.missing(entry.path, self.root, folder=True)
            if wrong:
                self.reader.add(f"{place}.path", *wrong)
            else:
                self._tasks(entry, entry.path, place)
        elif entry.id and not self.has_store:
            manifest = self.root / ".evsys" / "cache" / "benchmarks" / entry.id / "manifest.json"
            if not manifest.is_file():
                message = f"the benchmark {entry.id!r} isn't in the project's cache, and no 'data_store' is configured"
                self.reader.add(f"{place}.id", message, "add a 'data_store', or give a 'path'")

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
        for index, spec in enumerate(entry.metric_specs):
            where = f"{place}.metrics[{index}]"
            if spec.kind in seen:
                self.reader.add(where, f"the metric {spec.kind!r} is listed twice", "keep one")
                continue
            seen.add(spec.kind)
            extra = {"pass_threshold": entry.pass_threshold}
            built = self.plugins.build("metric", spec.kind, spec.params, where, extra=extra)
            short = isinstance(entry.metrics[index], str)
            for problem in built.problems:
                path = where if short and problem.path == f"{where}.kind" else problem.path
                self.reader.add(path, problem.message, problem.hint)
            direction = getattr(built.plugin, "direction", None)
            if direction not in {None, "max", "min"}:
                self.reader.add(where, *wrong_direction(spec.kind, direction))
            needed = samples_needed(built.plugin)
            if needed > entry.num_samples:
                self.reader.add(where, *too_few(spec.kind, needed, entry.num_samples))

    def _engine(self, entry: BenchmarkConfig, tree: Mapping[str, Any], place: str) -> None:
        spec = entry.engine_spec
        if spec.kind == "auto":
            return
        where = f"{place}.engine"
        built = self.plugins.build("rollout_engine", spec.kind, spec.params, where)
        for problem in built.problems:
            path = where if isinstance(entry.engine, str) else problem.path
            self.reader.add(path, problem.message, problem.hint)
        honours = getattr(built.plugin, "honours", None)
        for option in _ENGINE_OPTIONS:
            if honours is not None and option in tree and option not in honours:
                self.reader.add(
                    f"{place}.{option}", f"engine {spec.kind!r} would ignore {option!r}", "leave it out"
                )

    def _tasks(self, entry: BenchmarkConfig, name: str, place: str) -> None:
        problems = [
            problem
            for index, spec in enumerate(entry.transforms)
            for problem in self.plugins.build(
                "transform", spec.kind, spec.params, f"{place}.transforms[{index}]"
            ).problems
        ]
        if problems:
            self.reader.add_all(problems)
            return
        try:
            found = load_tasks(self.root / name, name, self.root, entry.transforms, self.plugins.registry)
        except DataError as exc:
            self.data_errors.append(exc)
            self.reader.report.add(
                Problem(
                    path=f"{place}.path", message=exc.message, hint=exc.hint, source=exc.source, line=exc.line
                )
            )
            return
        self._verifiers(found, name, place)
        keys = [(f"{place}.breakdown_keys[{index}]", key) for index, key in enumerate(entry.breakdown_keys)]
        keys += [(f"{place}.cluster_key", entry.cluster_key)] if entry.cluster_key else []
        for where, key in keys:
            has = sum(key in task.metadata for task in found.tasks)
            if not has:
                known = sorted({name for task in found.tasks for name in task.metadata})
                near = get_close_matches(key, known, n=1)
                hint = (
                    f"did you mean {near[0]!r}?"
                    if near
                    else f"their metadata has: {', '.join(known) or 'nothing'}"
                )
                self.reader.add(where, f"no task of {name} has {key!r} in its metadata", hint)
            elif has < len(found.tasks):
                self.reader.report.warn(
                    f"benchmark {entry.label!r}: {len(found.tasks) - has} tasks have no {key!r}"
                )

    def _verifiers(self, found: Tasks, name: str, place: str) -> None:
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
                wrong = judged[key][1]
                if wrong is not None:
                    wrong_tasks.append((task.task_id, wrong))
            check = getattr(judged[key][0], "check", None)
            if callable(check):
                try:
                    check(spec.expected)
                except PLUGIN_FAILURES as exc:
                    message = f"verifier {spec.name!r} can't judge by what it expects: {exc}"
                    wrong_tasks.append((task.task_id, message))
        for task_id, message in wrong_tasks[:_MOST_TASKS]:
            self._task_problem(found, task_id, f"task {task_id!r}: {message}", name, place)
        if len(wrong_tasks) > _MOST_TASKS:
            more = f"{len(wrong_tasks) - _MOST_TASKS} more tasks from here on have problems"
            self._task_problem(found, wrong_tasks[_MOST_TASKS][0], more, name, place)

    def _verifier(self, name: str, params: Mapping[str, Any]) -> tuple[Any, str | None]:
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
        return built.plugin, None

    def _task_problem(self, found: Tasks, task_id: str, message: str, name: str, place: str) -> None:
        self.reader.report.add(
            Problem(
                path=f"{place}.path",
                message=message,
                source=name,
                line=found.line_of(task_id),
            )
        )


def wrong_direction(metric: str, direction: object) -> tuple[str, str]:
    """Message and hint for a metric whose direction is none."""
    return f"the metric {metric!r} declares the direction {direction!r}", "it is 'max' or 'min'"


def samples_needed(metric: object) -> int:
    """How many samples of a task a metric needs."""
    needed = getattr(metric, "needs_samples", 1)
    return needed if isinstance(needed, int) else 1


def too_few(metric: str, needed: int, given: int) -> tuple[str, str]:
    """Message and hint for a metric that needs more samples than there are."""
    message = f"{metric} needs {needed} samples of each task, and 'num_samples' is {given}"
    return message, f"set num_samples: {needed} or more"
