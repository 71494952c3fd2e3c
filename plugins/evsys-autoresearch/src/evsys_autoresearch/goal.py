# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The goal file of a research run: its aim, start, levers and limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys import Registry
from evsys.errors import ConfigError, PluginError
from evsys.types import SearchAxis
from evsys_autoresearch.levers import Levers, derived_axes
from evsys_runtime import BenchmarkConfig
from evsys_runtime.config import document as documents
from evsys_runtime.config import paths, trees
from evsys_runtime.config.document import Document
from evsys_runtime.config.model.fields import key
from evsys_runtime.config.model.plugins import PluginSpec
from evsys_runtime.config.plan import Plan, SuccessMetric
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.root import find_project_root
from evsys_runtime.config.validate import load_experiment

__all__ = ["Goal", "GoalConfig", "load_goal"]


@attrs.frozen(kw_only=True)
class ObjectiveConfig:
    """The measure of success."""

    metric: str = key("`<val entry>.<metric>` of the start's file.", min_len=1)
    minimum_effect: float = key("The smallest difference to the start worth a claim.", 0.0, ge=0)


@attrs.frozen(kw_only=True)
class LeverConfig:
    """A lever whose values can be searched."""

    path: str = key("Path in the experiment file.", min_len=1)
    values: tuple[Any, ...] | None = key("The values; instead of `low` and `high`.", None)
    low: int | float | None = key("The lowest number of a range.", None)
    high: int | float | None = key("The highest number of a range.", None)
    log: bool = key("Whether equal ratios of the range count alike.", False)
    type: Literal["float", "int"] = key("Type of the numbers in the range.", "float")

    def axis(self) -> SearchAxis | None:
        """The axis; None if it has neither values nor a whole range."""
        if self.values:
            return SearchAxis(path=self.path, choices=self.values)
        if self.low is None or self.high is None or not self.low < self.high or (self.log and self.low <= 0):
            return None
        return SearchAxis(path=self.path, low=self.low, high=self.high, log=self.log, type=self.type)


@attrs.frozen(kw_only=True)
class SealedConfig:
    """The final test, which no researcher can read."""

    path: str = key(
        "File or folder of tasks, relative to the project root; outside of every lever.", min_len=1
    )


@attrs.frozen(kw_only=True)
class LimitsConfig:
    """The limits of a research run."""

    experiments: int = key("Rounds, lost ones included.", ge=1)
    seconds: float | None = key(
        "Seconds of researchers and experiments, those of the end included.", None, gt=0
    )
    money: float | None = key("US dollars, as far as prices are known.", None, gt=0)


@attrs.frozen(kw_only=True)
class StopConfig:
    """When to stop before the budget is used up."""

    no_progress: int | None = key("Rounds in a row without a new best score.", None, ge=1)
    lost: int = key("Lost rounds in a row.", 5, ge=1)


@attrs.frozen(kw_only=True)
class ConfirmSeedsConfig:
    """How the winner is confirmed."""

    seeds: int = key("Fresh seeds that the start and the winner are retrained with.", 4, ge=2, le=32)


@attrs.frozen(kw_only=True)
class GoalConfig:
    """The keys of a goal file."""

    version: Literal[1] = key("Version of this format.", 1)
    goal: str = key("The aim, in words.", min_len=1)
    objective: ObjectiveConfig = key("The measure of success.")
    start: str = key(
        "The experiment file to improve on, with one `run`; relative to the project root.", min_len=1
    )
    levers: tuple[str | LeverConfig, ...] = key(
        "The parts that a researcher may change: paths in the experiment file, `{path, values}` or `{path, low, high}` where they can be "
        "searched, and patterns of files such as `src/transforms/**`.",
        min_len=1,
    )
    sealed: SealedConfig | None = key("The final test; without one nothing is claimed.", None)
    budget: LimitsConfig = key("The limits.")
    stop: StopConfig = key("When to stop earlier.", factory=StopConfig)
    researcher: PluginSpec = key("Who proposes experiments.", plugin="researcher")
    referee: tuple[Literal["random", "bayesian"], ...] = key(
        "Researchers that get the same budget, for comparison.", factory=tuple
    )
    confirm: ConfirmSeedsConfig = key("How the winner is confirmed.", factory=ConfirmSeedsConfig)
    propose_seconds: float = key("Seconds that a researcher may take for a proposal.", 900.0, gt=0)
    sandbox: Literal["bwrap", "none"] = key(
        "Where the researcher's programs and code run: in bubblewrap, or unprotected, which the report says.",
        "bwrap",
    )
    seed: int = key("Seed of the researcher.", 0, ge=0)


@attrs.frozen(kw_only=True, eq=False)
class Goal:
    """A goal file without problems.

    `start` is the plan of the start's file and `tree` its contents; `sealed` is the final test's entry, scored like the entry of the
    success metric.
    """

    config: GoalConfig
    document: Document
    project_root: Path
    registry: Registry
    start: Plan
    tree: Mapping[str, Any]
    success: SuccessMetric
    levers: Levers
    sealed: BenchmarkConfig | None = None

    @property
    def entry(self) -> BenchmarkConfig:
        """The validation entry that decides."""
        return next(
            each for each in self.start.experiment.metadata.benchmarks if each.label == self.success.benchmark
        )


def load_goal(
    path: str | Path, *, registry: Registry | None = None, project_root: Path | None = None
) -> Goal:
    """Read and check a goal file.

    Args:
        path: the file.
        registry: where plugins are looked up; by default what is installed and the project's own.
        project_root: what its paths start from; by default found from where the file is.

    Raises:
        ConfigError: every problem of the file, with its place.
        PluginError, DataError: as for the start's experiment file.
    """
    document = documents.read(path)
    report = Report()
    report.add(*document.problems)
    reader = Reader(document, report)
    values = reader.fields(GoalConfig, document.tree, "$")
    report.raise_if_any()
    config = GoalConfig(**values)
    root = project_root or find_project_root(path)
    registry = registry or project_registry()
    import_project_code(root, registry)
    start = _start(config, reader, root, registry)
    levers = _levers(config, reader, start)
    success = _success(config, reader, start)
    _check_researcher(config, reader, registry)
    entry = _read_sealed(config, reader, root, start, success)
    report.raise_if_any()
    assert start is not None
    assert success is not None
    return Goal(
        config=config,
        document=document,
        project_root=root,
        registry=registry,
        start=start,
        tree=start.document.tree,
        success=success,
        levers=levers,
        sealed=entry,
    )


def _start(config: GoalConfig, reader: Reader, root: Path, registry: Registry) -> Plan | None:
    """The plan of the start; a problem if it has not exactly one arm."""
    path = root / config.start
    if not path.is_file():
        reader.add("$.start", f"no such file: {config.start}", f"paths start from {root}")
        return None
    plan = load_experiment(path, registry=registry, project_root=root)
    if "run" not in plan.document.tree or plan.search is not None or plan.experiment.stages:
        reader.add("$.start", "the start needs one 'run'", "write the best known recipe as a file of its own")
        return None
    return plan


def _levers(config: GoalConfig, reader: Reader, start: Plan | None) -> Levers:
    """The levers; each path has to be one of a run."""
    written, axes = [], []
    for place, lever in enumerate(config.levers):
        path = lever if isinstance(lever, str) else lever.path
        written.append(path)
        where = f"$.levers[{place}]"
        if Levers.is_pattern(path):
            if not isinstance(lever, str):
                reader.add(
                    where, f"{path!r} is a pattern of files, which has no values", "give the pattern alone"
                )
            continue
        try:
            segments = paths.parse(path)
        except ValueError as exc:
            reader.add(where, str(exc))
            continue
        if segments[0] != "run" or len(segments) < 2:
            reader.add(
                where, f"{path!r} is not inside 'run'", "levers are paths such as run.algorithm.params"
            )
        elif isinstance(lever, LeverConfig):
            axis = lever.axis()
            if axis is None:
                reader.add(where, "expected 'values', or 'low' below 'high' (above 0 with 'log')")
            else:
                axes.append(axis)
        elif start is not None:
            value = trees.get(start.document.tree, segments)
            axes += derived_axes(path, value)
    named = {axis.path for axis in axes}
    if len(named) < len(axes):
        reader.add("$.levers", "two levers have the same path")
    return Levers(written=tuple(written), space=tuple(axes))


def _success(config: GoalConfig, reader: Reader, start: Plan | None) -> SuccessMetric | None:
    """The objective as the start's file decides it: the same metric of a `val` entry."""
    if start is None:
        return None
    if start.success is None or str(start.success) != config.objective.metric:
        known = "has none" if start.success is None else f"is {start.success}"
        reader.add(
            "$.objective.metric",
            f"{config.objective.metric!r} is not the success metric of the start, which {known}",
            f"set metadata.success_metric in {config.start}, or name that one here",
        )
        return None
    entry = next(e for e in start.experiment.metadata.benchmarks if e.label == start.success.benchmark)
    if entry.split == "test":
        reader.add("$.objective.metric", "it is on a 'test' entry", "research is steered by a 'val' entry")
    return start.success


def _check_researcher(config: GoalConfig, reader: Reader, registry: Registry) -> None:
    try:
        registry.build(
            "researcher", config.researcher.kind, config.researcher.params, path="$.researcher.params"
        )
    except ConfigError as exc:
        reader.add_all(exc.problems)
    except PluginError as exc:
        reader.add("$.researcher.kind", exc.message, exc.hint)


def _read_sealed(
    config: GoalConfig, reader: Reader, root: Path, start: Plan | None, success: SuccessMetric | None
) -> BenchmarkConfig | None:
    if config.sealed is None or start is None or success is None:
        return None
    path = (root / config.sealed.path).resolve()
    if not path.exists():
        reader.add(
            "$.sealed.path", f"no such file or folder: {config.sealed.path}", f"paths start from {root}"
        )
        return None
    inside = path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else None
    if inside is not None:
        reader.add(
            "$.sealed.path",
            "the final test is inside the project, which researchers see",
            "move it to a folder next to the project, such as ../sealed",
        )
        return None
    entry = next(e for e in start.experiment.metadata.benchmarks if e.label == success.benchmark)
    return attrs.evolve(
        entry, name="sealed", path=str(path), id=None, split="test", tags=(), run_every=None, limit=None
    )
