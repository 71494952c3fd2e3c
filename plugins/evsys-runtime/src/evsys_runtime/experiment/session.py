"""An experiment under way: its plan, its record, its listeners, and what arms share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from evsys import HookManager, Registry
from evsys.errors import DataError, EvsysError, PluginError, StoreError, boundary
from evsys.protocols import Log, LogStore
from evsys.types import ArmResult
from evsys_runtime.background import in_background
from evsys_runtime.config.harness import Harness, run_harness
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig, CheckpointSelection, Plan
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.evaluation.benchmarks import BoundBenchmark, load_benchmark, with_harness
from evsys_runtime.evaluation.proof import proofs_of
from evsys_runtime.experiment.added.confirm_entries import deciding_entry, is_scored
from evsys_runtime.experiment.arms.shared_scores import SharedScores
from evsys_runtime.experiment.checks.plan_secrets import refuse_secrets
from evsys_runtime.experiment.earlier.preregistration import (
    CHANGED,
    PREREGISTERED,
    child_of,
    preregistered,
    question_changed,
)
from evsys_runtime.experiment.earlier.runs import EarlierRuns
from evsys_runtime.experiment.facts import experiment_facts
from evsys_runtime.experiment.log_store import LogStoreListener
from evsys_runtime.experiment.memory.repeats import repeats_on_record
from evsys_runtime.experiment.resolved import resolved_tree
from evsys_runtime.experiment.resuming.taken_up import TakenUp
from evsys_runtime.experiment.secrets import redactor_of, without_secrets
from evsys_runtime.experiment.seeds import Seeds, seeds_of
from evsys_runtime.experiment.spending.budget import ArmBudget, ExperimentBudget
from evsys_runtime.experiment.spending.spent import spent_on_record
from evsys_runtime.experiment.verdict.prose import run_markdown
from evsys_runtime.experiment.watching.interrupts import interruption
from evsys_runtime.experiment.watching.watchdog import Watchdog
from evsys_runtime.record.cache import CachedData, rows_of_store
from evsys_runtime.record.experiment_record import ExperimentRecord
from evsys_runtime.record.logging import LogSettings, configure, run_logger
from evsys_runtime.record.run_record import RunRecord
from evsys_runtime.record.secrets import Redactor
from evsys_runtime.record.workspace import Workspace

if TYPE_CHECKING:
    from evsys_runtime.experiment.added.added_arms import ArmSource
    from evsys_runtime.experiment.benchmark import Benchmark
    from evsys_runtime.experiment.injected import EvsysStore, InferenceFactory, TrainFn

__all__ = [
    "DRY_STEPS",
    "DRY_TASKS",
    "OptionKeys",
    "Options",
    "Session",
    "bound_benchmarks",
    "run_id_of",
]

DRY_STEPS = 2
"""Optimiser steps of a dry run."""

PROGRESS = "print_progress"
"""The callback that shows how a run goes; it is there unless `quiet` says otherwise."""

TOLD_BY_PROGRESS = frozenset(
    {
        "run.failed",
        "evaluation.failed",
        "evaluation.invalid",
        "evaluation.missing",
        "evaluation.metric_failed",
    }
)
"""Events of the log that it tells people of, so that the log's console doesn't say them again."""

HOOK_SECONDS = 300.0
"""How long a listener may take each time; `watchdog.floor_seconds` where that is less."""

DRY_TASKS = 4
"""Tasks of each benchmark in a dry run."""


class OptionKeys(TypedDict, total=False):
    """What `Experiment` takes by keyword; see `Options`."""

    dry: bool
    fail_fast: bool
    quiet: bool
    skip_grader_check: bool
    no_cache: bool
    store: EvsysStore | None
    train_fn: TrainFn | None
    benchmark: Benchmark | None
    inference_factory: InferenceFactory | None


@attrs.frozen(kw_only=True)
class Options:
    """How an experiment is run, as against what it is.

    Attributes:
        dry: a few steps and tasks, every rollout kept, no verdict.
        fail_fast: stop at the first arm that fails: those under way are `cancelled`, the others `skipped`.
        quiet: nothing on standard error.
        skip_grader_check: don't try the benchmarks' verifiers before anything is trained.
        no_cache: score everything anew, and keep no result for later.
        store: serves data by id or name, see `EvsysStore`; None means the file's `data_store`, where it has one.
        train_fn: trains `cfg.runs` and returns a result for each, sync (then in a thread) or async; by default `run_experiment`.
        benchmark: what arms are scored on, in place of the file's `metadata.benchmark`.
        inference_factory: called with the result and the run of each arm that completed; makes the client that its trained model is
            scored through.
    """

    dry: bool = False
    fail_fast: bool = False
    quiet: bool = False
    skip_grader_check: bool = False
    no_cache: bool = False
    store: EvsysStore | None = None
    train_fn: TrainFn | None = None
    benchmark: Benchmark | None = None
    inference_factory: InferenceFactory | None = None


def run_id_of(arm: ArmConfig) -> str:
    """`<arm>-s<repeat>`, of a stage `<arm>-s<repeat>.<index>-<stage>`."""
    return arm.run_id


@attrs.define(kw_only=True, eq=False)
class Session:
    """What the arms of one experiment share. Nothing here is global: two sessions in one process don't meet.

    `plan` grows by the arms that `sources` add while the experiment runs.
    `ambient` has the listeners that plugins bring, `hooks` those of the experiment as a whole; a run has its own from
    `listeners`. `untrained` holds scores of starting weights by what they depend on, so each is made once. `compared` does
    the same for API models, which the arm scores that comes so far first. `simulated` has the backends that only imitate a model.
    `repeated` has the arms of which it was told that an earlier experiment has them, each with that one.
    `budget` is what may still be spent, None without limits; `budgets` has the part of each arm that was started. `watched` has the watchdog of each arm under way. `earlier` knows the runs of other experiments. `taken_up` is what earlier
    attempts at the runs left, by run, where the experiment is resumed, and `datasets` are rows that were loaded already.
    `stopping` says why the arms under way are ended, where one of them failed and `fail_fast` is set; `down` why they have
    failed, where a service stays down that they need.
    """

    plan: Plan
    options: Options
    record: ExperimentRecord
    ambient: HookManager
    hooks: HookManager
    log: Log
    log_settings: LogSettings
    benchmarks: tuple[BoundBenchmark, ...]
    workspace: Workspace
    earlier: EarlierRuns
    sources: tuple[ArmSource, ...] = ()
    untrained: SharedScores = attrs.field(factory=SharedScores)
    compared: SharedScores = attrs.field(factory=lambda: SharedScores(retry_failed=False))
    results: dict[str, ArmResult] = attrs.field(factory=dict)
    taken_up: Mapping[str, TakenUp] = attrs.field(factory=dict)
    datasets: dict[str, MaterializedDataset] = attrs.field(factory=dict)
    simulated: set[str] = attrs.field(factory=set)
    scores_outside_harness: bool = False
    repeated: set[tuple[str, str]] = attrs.field(factory=set)
    watched: dict[str, Watchdog] = attrs.field(factory=dict)
    budgets: dict[str, ArmBudget] = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)
    budget: ExperimentBudget | None = attrs.field(init=False)
    log_store: LogStore | None = attrs.field(init=False)
    stopping: str | None = None
    down: EvsysError | None = None

    @classmethod
    def open(
        cls,
        plan: Plan,
        options: Options,
        benchmarks: Sequence[BoundBenchmark],
        forks: Path | None = None,
        *,
        sources: Sequence[ArmSource] = (),
    ) -> Session:
        """Make the record and the log; the listeners of the experiment are still to come.

        Raises:
            ConfigError, StoreError: before anything is trained.
        """
        refuse_secrets(plan)
        redactor = redactor_of(plan)
        experiments = plan.project_root / plan.experiment.output_dir
        asked, warnings = preregistered(plan, benchmarks), list[str]()
        changed = None if options.dry else question_changed(experiments, asked, forks, warnings.append)
        repeated = () if options.dry else repeats_on_record(plan, experiments, warnings.append)
        if changed is not None and plan.experiment.metadata.parent_experiment_id is None:
            plan = child_of(plan, changed["experiment_id"])
        resolved = resolved_tree(plan, benchmarks)  # before there is a record that could be left behind
        record = ExperimentRecord.create(
            experiments,
            plan.experiment.name,
            plan.document.text.encode("utf-8"),
            dry=options.dry,
            hypothesis=plan.experiment.metadata.hypothesis,
            facts={
                **experiment_facts(plan, options, benchmarks, forks),
                PREREGISTERED: asked,
                **({} if changed is None else {CHANGED: changed}),
            },
            redactor=redactor,
        )
        record.write_resolved(resolved)
        session = cls.over(record, plan, options, benchmarks, redactor, sources=sources)
        session.warnings += (*warnings, *repeated)
        for text in repeated:
            session.log.warning("experiment.repeated", what=text)
        return session

    @classmethod
    def over(
        cls,
        record: ExperimentRecord,
        plan: Plan,
        options: Options,
        benchmarks: Sequence[BoundBenchmark],
        redactor: Redactor,
        *,
        sources: Sequence[ArmSource] = (),
    ) -> Session:
        """A session that writes to a record that is there."""
        ambient, broken = _ambient(plan.registry)
        settings = configure(
            console_level=None if options.quiet else "warning",
            told=TOLD_BY_PROGRESS if _has_progress(plan.registry) else (),
            redactor=redactor,
        )
        warnings = [*plan.warnings, *broken]
        return cls(
            plan=plan,
            options=options,
            record=record,
            ambient=ambient,
            hooks=ambient,
            log=run_logger(record.directory / "experiment.log.jsonl", settings),
            log_settings=settings,
            benchmarks=tuple(benchmarks),
            workspace=Workspace(plan.project_root, tell=warnings.append),
            earlier=EarlierRuns(record.directory.parent, record.experiment_id, tell=warnings.append),
            sources=tuple(sources),
            warnings=warnings,
        )

    def listeners(self, log: Log, hung: Callable[[str], None] | None = None) -> HookManager:
        """Who listens: the ambient plugins, and new instances of the file's callbacks, so runs share no callback state.

        `log` is told of those that fail, `hung` of those that don't come back.
        """
        seconds = min(HOOK_SECONDS, self.plan.experiment.watchdog.floor_seconds)
        manager = self.ambient.child(log=log, seconds=seconds, hung=hung)
        shown = False
        for spec in self.plan.experiment.callbacks:
            if spec.kind.rpartition("/")[2] == PROGRESS:
                shown = True
                if self.options.quiet:
                    continue
            manager.register(self.plan.registry.build("callback", spec.kind, resolve(spec.params)), spec.kind)
        if self.log_store is not None:
            redactor = self.log_settings.redactor
            manager.register(
                LogStoreListener(self.log_store, self.record.experiment_id, redactor), "log_store"
            )
        if _has_progress(self.plan.registry) and not (shown or self.options.quiet):
            manager.register(self.plan.registry.build("callback", PROGRESS), PROGRESS)
        return manager

    def benchmarks_of(self, arm: ArmConfig) -> tuple[BoundBenchmark, ...]:
        """The entries that this arm is scored on, each in the harness that the run trains in unless the entry names its own.

        The proof of an entry that both selects and decides comes last.
        """
        selection = self.selection_of(arm)
        harness = run_harness(self.plan.registry, arm.run)
        if self.scores_outside_harness:
            harness = Harness(agent=arm.run.agent)
        scored = tuple(
            with_harness(bound, entry, harness, self.plan.registry) for entry, bound in self.scored_on(arm)
        )
        if arm.purpose == "confirm" and deciding_entry(self.plan) != selection.scored_again:
            return scored
        return (*scored, *proofs_of(selection, scored))

    @property
    def selection(self) -> CheckpointSelection:
        """Which checkpoint of a run counts here: in a dry run, and where a client of the caller's own serves it, the last."""
        if self.options.dry:
            return CheckpointSelection()
        if self.options.inference_factory is not None and self.plan.selection.checkpoint == "best":
            return CheckpointSelection(reason="an inference_factory serves the last one")
        return self.plan.selection

    def selection_of(self, arm: ArmConfig) -> CheckpointSelection:
        """Which checkpoint of this run counts: the last of one that trains nothing."""
        return CheckpointSelection() if arm.weights_of is not None else self.selection

    def scored_on(self, arm: ArmConfig) -> list[tuple[BenchmarkConfig, BoundBenchmark]]:
        """The entries that this arm is scored on, whoever acts, as the file has them and as they are bound."""
        entries = zip(self.plan.experiment.metadata.benchmarks, self.benchmarks, strict=True)
        return [(entry, bound) for entry, bound in entries if is_scored(self.plan, arm, entry)]

    @log_store.default
    def _log_store(self) -> LogStore | None:
        spec, registry = self.plan.experiment.log_store, self.plan.registry
        if spec is None:
            return None
        with use_scope(DataScope(project_root=self.plan.project_root)):  # its files are the project's
            params = resolve(spec.params)
            store: LogStore = registry.build("log_store", spec.kind, params, path="$.log_store.params")
        return store

    @budget.default
    def _budget(self) -> ExperimentBudget | None:
        limits = self.plan.experiment.budget
        if limits is None:
            return None

        def tell(text: str) -> None:
            self.warnings.append(text)
            self.log.warning("budget.warned", what=text)

        known = spent_on_record(self.record, tell)
        return ExperimentBudget(
            limits, known=known, keep=lambda facts: self.record.note(budget=facts), tell=tell
        )

    @property
    def why_ended(self) -> str:
        """Why an arm was cancelled, in words that follow "was"."""
        if self.down is not None:
            return f"ended, since {self.down.message}"
        return self.stopping or interruption().reason

    def seeds(self, arm: ArmConfig) -> Seeds:
        """The arm's seeds: `run.seed` takes the place of `base_seed`."""
        return seeds_of(self.plan, arm)

    def keep(self, record: RunRecord, result: ArmResult) -> ArmResult:
        """Write how a run ended, free of secrets, and close its record; nothing is awaited, so it works after Ctrl-C."""
        result = without_secrets(result, self.log_settings.redactor)
        record.write_result(result)
        record.write_conclusion(run_markdown(result))
        record.close()
        self.results[result.run_id] = result
        return result

    def keep_left_behind(self, record: RunRecord, result: ArmResult) -> ArmResult:
        """Write what an attempt came to that another one is going to replace, free of secrets: it is no result of the run."""
        result = without_secrets(result, self.log_settings.redactor)
        record.write_result_left_behind(result)
        return result

    async def pull(self, reference: str) -> CachedData:
        """A stored dataset by id or name: the project's own or what was pulled before, else from the store, then kept.

        Raises:
            StoreError: it isn't here and there is no store, or the store failed.
            DataError: it is here and can't be used.
        """
        try:
            return await in_background(self.workspace.pull_dataset, reference)
        except DataError as error:
            if not error.facts.get("unknown"):
                raise
            store = self._store()
            if store is None:
                raise StoreError(error.message, hint=error.hint) from error
        with boundary("store", type(store).__name__):
            # In threads that may be left behind: what a store gives is often read only while it is kept.
            is_async = inspect.iscoroutinefunction(store.pull)
            rows = store.pull(reference) if is_async else await in_background(store.pull, reference)
            if inspect.isawaitable(rows):
                rows = await rows
            cache = self.workspace.cache("datasets")
            return await in_background(
                cache.put, reference, rows_of_store(rows, reference), {"source": "store", "ref": reference}
            )

    def _store(self) -> Any:
        spec = self.plan.experiment.data_store
        if self.options.store is not None or spec is None:
            return self.options.store
        return self.plan.registry.build("data_store", spec.kind, resolve(spec.params))


def bound_benchmarks(plan: Plan, options: Options) -> tuple[BoundBenchmark, ...]:
    """Read the benchmarks' tasks and bind them to what scores them; some seconds where there are many.

    Raises:
        ConfigError, DataError, PluginError: nothing is recorded yet.
    """
    return tuple(
        load_benchmark(
            _limited(entry) if options.dry else entry,
            registry=plan.registry,
            project_root=plan.project_root,
            path=f"$.metadata.benchmark[{index}]",
        )
        for index, entry in enumerate(plan.experiment.metadata.benchmarks)
    )


def _has_progress(registry: Registry) -> bool:
    return any(entry.name == PROGRESS for entry in registry.entries("callback"))


def _ambient(registry: Registry) -> tuple[HookManager, list[str]]:
    """The listeners that installed plugins bring, and a warning for each that is broken: no experiment asked for it."""
    hooks, broken = HookManager(), []
    for entry in registry.entries("plugin"):
        try:
            hooks.register(registry.get("plugin", entry.qualified), entry.qualified)
        except PluginError as exc:
            broken.append(f"a listener was left out: {exc.message}")
    return hooks, broken


def _limited(entry: BenchmarkConfig) -> BenchmarkConfig:
    return attrs.evolve(entry, limit=min(entry.limit or DRY_TASKS, DRY_TASKS))
