"""Opens the session of an experiment: its record, its log, its listeners, its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from evsys.optional import SupportsVersions
from evsys.protocols import Launcher, LogStore
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.secrets import Redactor
from evsys_runtime.config.model import BenchmarkConfig, BudgetConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.validate import store_of_versions
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.workspace import Pins, Store, Workspace
from evsys_runtime.evaluation.benchmarks import BoundBenchmark, load_benchmark
from evsys_runtime.experiment.budget.budget import ExperimentBudget
from evsys_runtime.experiment.budget.project_budget import reserve_limits
from evsys_runtime.experiment.budget.spending import recorded_spending
from evsys_runtime.experiment.insight.repeats import repeats_on_record
from evsys_runtime.experiment.lineage.preregistration import (
    CHANGED,
    PREREGISTERED,
    child_of,
    preregister,
    question_changed,
)
from evsys_runtime.experiment.lineage.runs import EarlierRuns
from evsys_runtime.experiment.state.facts import STORED, experiment_facts
from evsys_runtime.experiment.state.listeners import TOLD_BY_PROGRESS, ambient_listeners, shows_progress
from evsys_runtime.experiment.state.options import DRY_TASKS, Options
from evsys_runtime.experiment.state.plan_secrets import refuse_secrets
from evsys_runtime.experiment.state.resolved_tree import resolved_tree
from evsys_runtime.experiment.state.secrets import redactor_of
from evsys_runtime.experiment.state.session import ArmSource, Session
from evsys_runtime.experiment.state.steering import requested_stops
from evsys_runtime.logging import configure, run_logger

__all__ = ["bound_benchmarks", "open_session", "session_over"]

LONGEST_WARNING = 500
"""Characters of a warning in an event; the log has all of it."""


def open_session(
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
    asked, warnings = preregister(plan, benchmarks), list[str]()
    changed = None if options.dry else question_changed(experiments, asked, forks, warnings.append)
    repeated = () if options.dry else repeats_on_record(plan, experiments, warnings.append)
    if changed is not None and plan.experiment.metadata.parent_experiment_id is None:
        plan = child_of(plan, changed["experiment_id"])
    resolved = resolved_tree(plan, benchmarks)  # before there is a record that could be left behind
    with reserve_limits(plan, dry=options.dry, tell=warnings.append) as limits:
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
                **({} if limits is None else {"budget": ExperimentBudget(limits).facts()}),
            },
            redactor=redactor,
        )
    record.write_resolved(resolved)
    session = session_over(record, plan, options, benchmarks, redactor, limits=limits, sources=sources)
    session.warnings += (*warnings, *repeated)
    for text in repeated:
        session.log.warning("experiment.repeated", what=text)
    return session


def session_over(
    record: ExperimentRecord,
    plan: Plan,
    options: Options,
    benchmarks: Sequence[BoundBenchmark],
    redactor: Redactor,
    *,
    limits: BudgetConfig | None,
    sources: Sequence[ArmSource] = (),
    log: Path | None = None,
) -> Session:
    """A session that writes to a record that is there, with these limits on its spending; `log` is the file of its log."""
    ambient, broken = ambient_listeners(plan.registry)
    settings = configure(
        console_level=None if options.quiet else "warning",
        told=TOLD_BY_PROGRESS if shows_progress(plan.registry) else (),
        warned=partial(_note_warning, record),
        redactor=redactor,
    )
    warnings = [*plan.warnings, *broken]
    session = Session(
        plan=plan,
        options=options,
        record=record,
        ambient=ambient,
        hooks=ambient,
        log=run_logger(log or record.directory / "experiment.log.jsonl", settings),
        log_settings=settings,
        benchmarks=tuple(benchmarks),
        workspace=Workspace(
            plan.project_root,
            store=_versions(plan, options),
            tell=warnings.append,
            pins=Pins(record.facts.get(STORED) or plan.stored, lambda known: record.note(**{STORED: known})),
        ),
        earlier=EarlierRuns(record.directory.parent, record.experiment_id, tell=warnings.append),
        sources=tuple(sources),
        warnings=warnings,
    )
    session.steering = requested_stops(record.facts.get("requests", ()))
    session.log_store = _log_store(plan)
    session.launcher = _launcher(plan)
    session.budget = _budget(session, limits)
    return session


def bound_benchmarks(plan: Plan, options: Options) -> tuple[BoundBenchmark, ...]:
    """Read the benchmarks' tasks and bind them to what scores them; some seconds where there are many.

    Raises:
        ConfigError, DataError, PluginError: nothing is recorded yet.
    """
    workspace = Workspace(plan.project_root, pins=Pins(plan.stored))
    return tuple(
        load_benchmark(
            _limit(entry) if options.dry else entry,
            registry=plan.registry,
            project_root=plan.project_root,
            pull=partial(_tasks_of, workspace, raw=bool(entry.transforms)),
            path=f"$.metadata.benchmark[{index}]",
        )
        for index, entry in enumerate(plan.experiment.metadata.benchmarks)
    )


def _tasks_of(workspace: Workspace, ref: str, *, raw: bool) -> Path:
    return workspace.pull_benchmark(ref, raw=raw).path


def _versions(plan: Plan, options: Options) -> Store | None:
    """The data store of an experiment, if it has versions; any other is asked for what is neither in the project nor in its cache."""
    if options.store is not None:
        return options.store if isinstance(options.store, SupportsVersions) else None
    store: Store | None = store_of_versions(plan.experiment.data_store, plan.registry)
    return store


def _note_warning(record: ExperimentRecord, event: Mapping[str, Any]) -> None:
    """A warning of the log as an event: its name, and its words if it has any."""
    words = str(event.get("what") or event.get("reason") or "")[:LONGEST_WARNING]
    record.events.append(
        "warning.raised",
        run=event.get("run_id"),
        attempt=event.get("attempt"),
        warning=event["event"],
        message=words,
    )


def _log_store(plan: Plan) -> LogStore | None:
    spec, registry = plan.experiment.log_store, plan.registry
    if spec is None:
        return None
    with use_scope(DataScope(project_root=plan.project_root)):  # its files are the project's
        params = resolve(spec.params)
        store: LogStore = registry.build("log_store", spec.kind, params, path="$.log_store.params")
    return store


def _launcher(plan: Plan) -> Launcher | None:
    spec = plan.experiment.launcher
    if spec is None:
        return None
    launcher: Launcher = plan.registry.build(
        "launcher", spec.kind, resolve(spec.params), path="$.launcher.params"
    )
    return launcher


def _budget(session: Session, limits: BudgetConfig | None) -> ExperimentBudget | None:
    if limits is None:
        return None

    def tell(text: str) -> None:
        session.warnings.append(text)
        session.log.warning("budget.warned", what=text)

    known = recorded_spending(session.record, tell)
    return ExperimentBudget(
        limits,
        known=known,
        keep=lambda facts: session.record.note(budget=facts),
        tell=tell,
        note=session.record.events.append,
    )


def _limit(entry: BenchmarkConfig) -> BenchmarkConfig:
    return attrs.evolve(entry, limit=min(entry.limit or DRY_TASKS, DRY_TASKS))
