"""The only entrance: an experiment file to a `Plan`, or all its faults at once.

Nothing is trained, downloaded or paid for here: the file is read, expanded and structured, its plugins are built,
and the files that it names are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry, structure, use_registry
from evsys.errors import DataError, EvsysError
from evsys.optional import SupportsKeep, SupportsVersions
from evsys_runtime.collection_pause import collection_paused
from evsys_runtime.config import document as documents
from evsys_runtime.config import files, paths, placeholders
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config.aliases import Aliases
from evsys_runtime.config.arm_problems import ArmProblems
from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.arms import Arms
from evsys_runtime.config.budgeting import budget_warnings, first_arm_warnings, known_steps
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.chain import RECIPES, check_learned, recipe_of, recipe_values
from evsys_runtime.config.checkpoint_selection import check_select
from evsys_runtime.config.confirming import check_confirm, check_control, check_reuse
from evsys_runtime.config.document import Document
from evsys_runtime.config.expand import expand_document, usable_matrix
from evsys_runtime.config.grid import MAX_ARMS
from evsys_runtime.config.harness import check_harnesses
from evsys_runtime.config.ineffective import ineffective_settings
from evsys_runtime.config.judging import Judging, check_metadata
from evsys_runtime.config.later import NOT_YET, later_keys, older_block
from evsys_runtime.config.model import (
    BenchmarkConfig,
    ConfirmConfig,
    ExperimentConfig,
    MatrixConfig,
    PluginSpec,
    RunConfig,
)
from evsys_runtime.config.monitoring import check_monitored
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.config.python_config import document_of, with_benchmark
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.reruns import controls
from evsys_runtime.config.resolver import Resolver
from evsys_runtime.config.root import find_project_root
from evsys_runtime.config.scalar_text import misread, unset_in_prompts
from evsys_runtime.config.search_plan import PlannedSearch, check_baseline, check_search, refuse_search_alone
from evsys_runtime.config.side_by_side import side_by_side
from evsys_runtime.config.space import Space
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.workspace import Pins, Store, Workspace

__all__ = ["load_experiment", "store_of_versions"]

_ARMS = ("run", "runs", "matrix", "base_run")

type CheckedArms = list[tuple[ArmTree, RunConfig | None]]


def load_experiment(
    cfg: str | Path | Document | Mapping[str, Any] | ExperimentConfig,
    *,
    overrides: Sequence[str] = (),
    registry: Registry | None = None,
    store: Store | None = None,
    pins: Mapping[str, Mapping[str, Any]] | None = None,
    records: bool = True,
    project_root: Path | None = None,
    benchmark: BenchmarkConfig | None = None,
) -> Plan:
    """Read and check an experiment.

    Args:
        cfg: its file, as a path or as it was read; or what such a file holds: a mapping, or an `ExperimentConfig`.
        overrides: `path=value` texts, see `overrides`.
        registry: where plugins are looked up, and where the project's own are registered; by default a registry of
            the project: what is installed and what was registered before.
        store: a data store of the caller's, in place of what the file names.
        pins: the versions that names meant when the experiment began, see `Pins`.
        records: a record is going to be written; without it, the folder of the records needn't be writable.
        project_root: what paths of the file start from; by default found from where the file is, without a file from
            the working directory.
        benchmark: what is scored in place of the file's `metadata.benchmark`.

    Raises:
        ConfigError: with every problem of the file and of all arms, sorted by place.
        PluginError: nothing is wrong but a plugin.
        DataError: nothing is wrong but a benchmark's file.
    """
    cfg = documents.read(cfg) if isinstance(cfg, str | Path) else cfg
    document = cfg if isinstance(cfg, Document) else document_of(cfg)
    document = document if benchmark is None else with_benchmark(document, benchmark)
    root = find_project_root(document.source) if project_root is None else project_root
    registry = registry if registry is not None else project_registry()
    import_project_code(root, registry)
    with use_registry(registry), use_scope(DataScope(project_root=root)), collection_paused():
        plan = _plan(
            document, root, registry, tuple(overrides), store=store, pins=Pins(pins), records=records
        )
    return plan if benchmark is None else attrs.evolve(plan, benchmark=benchmark)


@attrs.frozen(kw_only=True, eq=False)
class _Contents:
    """The contents of a file, as far as they can be read: its top-level `values`, and the arms that it expands to.

    `whole` is False if arms may be missing, see `_arms`; `space` is that of the search.
    """

    reader: Reader
    plugins: Plugins
    values: Mapping[str, Any]
    checks: Arms
    arms: CheckedArms
    whole: bool
    space: Space | None

    @property
    def tree(self) -> Mapping[str, Any]:
        return self.reader.document.tree

    @property
    def trained(self) -> list[tuple[ArmTree, RunConfig]]:
        """The arms without problems."""
        return [(arm, run) for arm, run in self.arms if run is not None]


def _plan(
    document: Document,
    root: Path,
    registry: Registry,
    overrides: tuple[str, ...],
    *,
    store: Store | None,
    pins: Pins,
    records: bool,
) -> Plan:
    contents = _read(document, root, registry, overrides, has_store=store is not None)
    reader, plugins, values, checks = contents.reader, contents.plugins, contents.values, contents.checks
    callbacks = _check_shared_plugins(values, reader, plugins)
    if records:
        _writable(values, reader, root)
    promised, width = _check_runs(contents)
    workspace = Workspace(
        root,
        store=store or store_of_versions(values.get("data_store"), registry),
        pins=pins,
        tell=reader.report.warn,
    )
    judging, search, size = _check_judging(contents, workspace)
    if not reader.report.problems:
        _check_recipes(contents, judging)
    selection = check_select(
        values.get("select"),
        judging,
        reader,
        plugins,
        backends=[(run.backend.kind, checks.backend(arm.tree)) for arm, run in contents.trained],
        steps=[known_steps(run) for _, run in contents.trained],
        continual="continual" in contents.tree,
    )
    if values.get("launcher") is not None and isinstance(search, SupportsKeep):
        reader.add("$.launcher", "a search that stops arms in training needs them in its own process")
    for callback, place in callbacks:
        check_monitored(reader, callback, judging.benchmarks, place)
    _raise_what_was_found(reader.report, plugins, judging.data_errors)
    experiment = _experiment(contents.tree, values, contents.arms, judging)
    planned = _repeat_arms(experiment, contents.arms, promised)
    planned_search = _planned_search(contents, experiment, planned, search, size)
    return Plan(
        document=reader.document,
        experiment=experiment,
        arms=(*(planned if planned_search is None else ()), *controls(experiment, planned)),
        project_root=root,
        registry=registry,
        success=judging.success,
        selection=selection,
        search=planned_search,
        warnings=_warnings(contents, experiment, judging, [callback for callback, _ in callbacks]),
        overrides=overrides,
        concurrent_arms=width,
        tasks=judging.tasks,
        stored=pins.tree,
        resolver=_resolver(contents),
    )


def _resolver(contents: _Contents) -> Resolver:
    """A resolver with the algorithms that the checks have built."""
    resolver = Resolver(contents.plugins.registry)
    for arm, run in contents.trained:
        resolver.remember("algorithm", run.algorithm, contents.checks.algorithm(arm.tree))
    return resolver


def _read(
    document: Document, root: Path, registry: Registry, overrides: Sequence[str], *, has_store: bool
) -> _Contents:
    report = Report()
    report.add(*document.problems)
    report.settled.update(problem.path for problem in document.problems if problem.path != "$")
    document = _canonical_document(document, overrides, report, registry)
    reader, plugins = Reader(document, report), Plugins(registry)
    tree = document.tree
    _refuse_keys(tree, reader)
    report.add(*unset_in_prompts(document))
    refuse_search_alone(tree, reader)
    values = reader.fields(ExperimentConfig, tree, "$", skip=(*_ARMS, *RECIPES))
    if tree.get("search") is not None and "confirm" not in tree:  # a search chooses among many
        values["confirm"] = ConfirmConfig()
    checks = Arms(plugins, root, has_store or values.get("data_store") is not None)
    arms, whole, space = _arms(tree, reader, checks)
    return _Contents(
        reader=reader, plugins=plugins, values=values, checks=checks, arms=arms, whole=whole, space=space
    )


def _check_runs(contents: _Contents) -> tuple[list[bool], int]:
    """Of each arm whether it gives the same bits each time, and how many runs go side by side."""
    values, arms, search = contents.values, contents.arms, contents.space is not None
    if contents.whole and not search:
        _check_run_count(values, arms, contents.reader)
    promised = _determinism(values.get("deterministic"), arms, contents.reader, contents.checks)
    width = side_by_side(
        values.get("max_concurrent_arms"),
        None if search else _begin(values, arms),
        arms,
        contents.reader,
        contents.checks,
        in_turn=search and all(promised),
    )
    return promised, width


def store_of_versions(spec: object, registry: Registry) -> Any:
    """The data store of a file, if it has versions; None for any other, and for one that can't be made, which is reported elsewhere."""
    if not isinstance(spec, PluginSpec):
        return None
    try:
        store = registry.build("data_store", spec.kind, placeholders.resolve(spec.params))
    except EvsysError:
        return None
    return store if isinstance(store, SupportsVersions) else None


def _check_judging(contents: _Contents, workspace: Workspace) -> tuple[Judging, Any, int | None]:
    """Check the deciding metric, the search object, and the size of its space."""
    reader, values, space, named = contents.reader, contents.values, contents.space, []
    if contents.whole:  # an arm in stages begins where its first one does
        named = [(arm.name, arm.tree) for arm, _ in contents.arms if arm.stage is None or arm.stage.first]
    if space is not None and not check_baseline(contents.tree, reader):
        named = []
    confirm, metadata = values.get("confirm"), contents.tree.get("metadata")
    judging = check_metadata(
        reader, contents.plugins, workspace, metadata, named, confirm=confirm.benchmark if confirm else None
    )
    search, size = check_search(
        values.get("search"), space, judging, reader, contents.plugins, probes=contents.arms
    )
    check_reuse(values, contents.tree, reader, stops=isinstance(search, SupportsKeep))
    if confirm is not None and contents.whole:
        compared = None if space is not None else len({name for name, _ in named} - {judging.baseline})
        compared = 1 if judging.contrast is not None else compared
        claim = values["metadata"].claim if "metadata" in values else "better"
        check_confirm(confirm, claim, judging, compared, reader)
    if values.get("control") is not None and contents.whole:
        check_control(judging, [name for name, _ in named], reader)
    return judging, search, size


def _check_recipes(contents: _Contents, judging: Judging) -> None:
    """Whether the arms and the benchmark entries of a file without other problems go together."""
    reader, checks = contents.reader, contents.checks
    check_learned(contents.tree, judging.benchmarks, reader)
    harnesses = (checks.harness(arm.tree, run) for arm, run in contents.trained)
    entries = (contents.tree.get("metadata") or {}).get("benchmark")
    check_harnesses(harnesses, entries, judging.benchmarks, reader, contents.plugins)


def _planned_search(
    contents: _Contents,
    experiment: ExperimentConfig,
    probes: tuple[ArmConfig, ...],
    search: Any,
    size: int | None,
) -> PlannedSearch | None:
    if contents.space is None or experiment.search is None:
        return None
    return PlannedSearch(
        spec=experiment.search,
        space=contents.space,
        size=size,
        stops=isinstance(search, SupportsKeep),
        probes=probes,
        checks=contents.checks,
        repeat=partial(_repeat_arms, experiment),
        deterministic=experiment.deterministic,
    )


def _warnings(
    contents: _Contents, experiment: ExperimentConfig, judging: Judging, callbacks: Sequence[Any]
) -> tuple[str, ...]:
    """All warnings, each once."""
    runs = [(arm.name, run) for arm, run in contents.trained]
    found = (
        *contents.reader.report.warnings,
        *misread(contents.reader.document),
        *contents.checks.warnings,
        *contents.plugins.registry.warnings,
        *_budget_warnings(experiment, contents.arms),
        *ineffective_settings(runs, judging.benchmarks, callbacks),
    )
    return tuple(dict.fromkeys(found))


def _canonical_document(
    document: Document, overrides: Sequence[str], report: Report, registry: Registry
) -> Document:
    """The document with its overrides, by canonical names."""
    aliases = Aliases(registry, report)
    document = aliases.document(document)
    if not overrides:
        return document
    return aliases.document(overrides_.apply(document, overrides, report, aliases))


def _begin(values: Mapping[str, Any], arms: CheckedArms) -> int:
    """How many runs wait for no other one: an arm in stages goes through them one after another."""
    control = values.get("control")
    chains = sum(arm.stage is None or arm.stage.first for arm, _ in arms)
    repeated: int = values.get("n_repeats", 1) * chains
    return repeated + (0 if control is None else control.repeats)


def _refuse_keys(tree: Mapping[str, Any], reader: Reader) -> None:
    """Blocks of older files, and keys that this version doesn't act on."""
    for key in tree:
        if (wrong := older_block(key)) is not None:
            reader.add(f"$.{key}", *wrong)
            reader.report.settled.add(f"$.{key}")
    for path, hint in later_keys("experiment", tree):
        reader.add(path, NOT_YET, hint)
        reader.report.settled.add(path)


def _check_shared_plugins(
    values: Mapping[str, Any], reader: Reader, plugins: Plugins
) -> list[tuple[Any, str]]:
    """Check the plugins shared by all arms, stores and callbacks; returns the callbacks that can be built, and the
    places of their params.
    """
    callbacks = []
    specs = [(key, values.get(key), f"$.{key}") for key in ("data_store", "launcher", "log_store")]
    specs += [
        ("callback", spec, f"$.callbacks[{index}]") for index, spec in enumerate(values.get("callbacks", ()))
    ]
    for kind, spec, place in specs:
        if isinstance(spec, PluginSpec):
            built = plugins.build(kind, spec.kind, spec.params, place)
            reader.add_all(built.problems)
            if kind == "callback" and built.plugin is not None:
                reader.add_all(plugins.listens(built.plugin, spec.kind, f"{place}.kind"))
                callbacks.append((built.plugin, f"{place}.params"))
    return callbacks


def _writable(values: Mapping[str, Any], reader: Reader, root: Path) -> None:
    folder = values.get("output_dir", attrs.fields(ExperimentConfig).output_dir.default)
    wrong = files.unwritable(folder, root)
    if wrong:
        reader.add("$.output_dir", *wrong)


def _arms(tree: Mapping[str, Any], reader: Reader, checks: Arms) -> tuple[CheckedArms, bool, Space | None]:
    """The arms, and the problems in them: each once, where its value came from, with the number of arms it is in.

    False with them where something is wrong with how they are given, so that they may not be all. With a search
    they are those looked at beforehand, and what it chooses from comes with them.
    """
    matrix, refused = usable_matrix(tree, reader)
    recipe = recipe_of(reader)
    expansion = expand_document(recipe.document, reader.report, matrix, refused)
    arms: CheckedArms = []
    found = ArmProblems()
    for whole_arm in expansion.arms:
        before = None
        for arm in recipe.stages(whole_arm):
            run, problems = checks.check(arm.tree)
            problems += checks.follows(before, arm.tree) if before is not None else ()
            arms.append((arm, run))
            before = arm.tree
            found.look_at(arm)
            for problem in problems:
                if expansion.unknown.isdisjoint(paths.ancestors(problem.path)):
                    found.add(arm, problem)
    counted = expansion.whole and expansion.space is None
    for problem, count in found.placed(len(expansion.arms) if counted else None):
        reader.report.add(reader.placed(problem, count))
    return arms, expansion.whole, expansion.space


def _check_run_count(values: Mapping[str, Any], arms: CheckedArms, reader: Reader) -> None:
    """More runs than anyone means are refused, however few arms they repeat."""
    runs = values.get("n_repeats", 1) * len(arms)
    if runs > MAX_ARMS:
        message = f"{len(arms):,} arms repeated make {runs:,} runs; at most {MAX_ARMS:,} are accepted"
        reader.add("$.n_repeats", message, "repeat them less often")


def _determinism(said: bool | None, arms: CheckedArms, reader: Reader, checks: Arms) -> list[bool]:
    """Whether each arm gives the same bits each time: what the file says, else what its backend promises."""
    promised = []
    for arm, run in arms:
        unsure = [] if run is None else checks.unsteady(arm.tree)
        capable = run is not None and not unsure
        if said and unsure:
            message = f"backend {unsure[0]!r} can't promise it"
            reader.add("$.deterministic", message, "leave it out, or use another backend")
        promised.append(capable if said is None else said)
    return promised


def _raise_what_was_found(report: Report, plugins: Plugins, data_errors: Sequence[DataError]) -> None:
    """Raise what is wrong as the class that says whose fault it is: the file's, unless it is all one other's."""
    problems = report.ordered()
    if problems and all(
        any(message in problem.message for message in plugins.broken) for problem in problems
    ):
        message, error = next(iter(plugins.broken.items()))
        problem = next(problem for problem in problems if message in problem.message)
        raise type(error)(str(attrs.evolve(problem, hint=None)), hint=error.hint, **error.facts) from error
    damaged = {error.source for error in data_errors}
    if data_errors and all(problem.source in damaged for problem in problems):
        raise data_errors[0]
    report.raise_if_any()


def _experiment(
    tree: Mapping[str, Any], values: Mapping[str, Any], arms: CheckedArms, judging: Judging
) -> ExperimentConfig:
    runs = tuple(run for _, run in arms if run is not None)
    form: dict[str, Any] = {}
    if "run" in tree:
        form["run"] = runs[0]
    elif "runs" in tree:
        form["runs"] = runs
    else:
        form["matrix"] = structure(MatrixConfig, tree["matrix"], path="$.matrix")
        form["base_run"] = tree.get("base_run")
    experiment = ExperimentConfig(**values, **recipe_values(tree), **form)
    metadata = attrs.evolve(
        experiment.metadata,
        benchmark=judging.benchmarks,
        baseline=judging.baseline,
        contrast=judging.contrast,
    )
    return attrs.evolve(experiment, metadata=metadata)


def _budget_warnings(experiment: ExperimentConfig, arms: CheckedArms) -> Iterator[str]:
    named = [(arm.name, run) for arm, run in arms if run is not None]
    if experiment.search is not None:  # which goes as far as its budget goes
        fewest = min(named, key=lambda one: known_steps(one[1]) or math.inf)
        alone = list(budget_warnings(experiment.budget, [fewest], 1))
        return iter(alone) if alone else first_arm_warnings(experiment, fewest[1])
    return budget_warnings(experiment.budget, named, experiment.n_repeats)


def _repeat_arms(
    experiment: ExperimentConfig, arms: CheckedArms, promised: Sequence[bool]
) -> tuple[ArmConfig, ...]:
    benchmarks = experiment.metadata.benchmarks
    made: list[ArmConfig] = []
    for repeat in range(experiment.n_repeats):
        for (arm, run), deterministic in zip(arms, promised, strict=True):
            if run is None:
                continue
            # The stages of an arm stand one behind the other.
            after = None if arm.stage is None or arm.stage.first else made[-1].run_id
            made.append(
                ArmConfig(
                    name=arm.name,
                    repeat=repeat,
                    seed_override=run.seed,
                    run=run,
                    tree=arm.tree,
                    digest=arm.digest,
                    deterministic=deterministic,
                    benchmarks=benchmarks,
                    after=after,
                    stage=arm.stage,
                )
            )
    return tuple(made)
