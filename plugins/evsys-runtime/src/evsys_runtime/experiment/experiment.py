"""`Experiment`: from a YAML file to a conclusion. The command line and Python take this one path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import attrs

from evsys import use_registry
from evsys.errors import PLUGIN_FAILURES, ConfigError, StoreError
from evsys.types import ExperimentResult
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.background import in_background, to_the_end
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import ExperimentConfig
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.project import import_project_code
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.experiment.conclusion import conclude_and_write, write_down
from evsys_runtime.experiment.control.channel import control_channel
from evsys_runtime.experiment.lineage.preregistration import child_of
from evsys_runtime.experiment.open_session import bound_benchmarks, open_session
from evsys_runtime.experiment.preflight.contamination import flagged_tasks
from evsys_runtime.experiment.preflight.grader_checks import check_graders, keep_grader_checks
from evsys_runtime.experiment.preflight.leak_warnings import quick_leak_warnings
from evsys_runtime.experiment.resume.changes import original_plan
from evsys_runtime.experiment.resume.foreign import relocate_plan
from evsys_runtime.experiment.resume.fork import branch_off
from evsys_runtime.experiment.resume.resume import (
    left_to_do,
    recorded_grader_warnings,
    reopen,
    restart_points,
    result_on_record,
    resume_session,
)
from evsys_runtime.experiment.resume.unfinished_experiments import Unfinished
from evsys_runtime.experiment.runner import train
from evsys_runtime.experiment.search.sources import sources_of
from evsys_runtime.experiment.state.listeners import run_listeners
from evsys_runtime.experiment.state.options import OptionKeys, Options, injected_names, refuse_misfits
from evsys_runtime.experiment.state.secrets import redactor_of
from evsys_runtime.experiment.state.session import Session
from evsys_runtime.experiment.supervision.event_loop import run_to_end
from evsys_runtime.experiment.supervision.interrupts import AbandonRequest
from evsys_runtime.experiment.supervision.startup_deadline import beforehand
from evsys_runtime.live_lines import leave_live_lines

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Log
    from evsys_record.control import Address
    from evsys_runtime.data.contamination import Match
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.evaluation.grader_check import GraderCheck

__all__ = ["Experiment"]

EARLY_ENDS: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt, *PLUGIN_FAILURES)
"""Exceptions that may end an experiment before its arms are done, all of which its record reports."""


class Experiment:
    """An experiment known to be valid and hasn't started.

    Args:
        cfg: what an experiment file holds, as a mapping or as an `ExperimentConfig`; its file; or a plan that
            `load_experiment` made.
        project_root: what its paths start from; by default the project of its file, without a file that of the
            working directory.
        registry: where plugins are looked up, by default in what is installed and the project's own.
        **options: `dry`, `fail_fast`, `quiet`, `skip_grader_check`, `no_cache`, and for tests and own runners `store`, `train_fn`, `benchmark`,
            `inference_factory`; `evsys_runtime.experiment.state.options.Options` says what each does.

    Raises:
        ConfigError: every problem of the experiment and of each arm, or an option that can't be used.

    Attributes:
        plan: the experiment as it was checked.
        result: how it ended, as soon as that is on record; also where `run` raised, as after Ctrl-C.
        record: where it is put on record, as soon as it is.
        resumes: the experiment on record that this one continues with; None for a new one.
        forks: the folder of the experiment that this one branches off from; None for one that begins at its
            beginning.
        nothing_to_do: that one was complete, so `run` gave the result that it has on record.
        control: where its process listens for requests while it runs; None before, and where no socket can be bound.
        on_launch: is called with `record` and `control` once both are there, before anything is trained.
    """

    result: ExperimentResult | None = None
    record: ExperimentRecord | None = None
    resumes: Unfinished | None = None
    forks: Path | None = None
    control: Address | None = None
    on_launch: Callable[[ExperimentRecord, Address | None], None] | None = None

    def __init__(
        self,
        cfg: Plan | ExperimentConfig | Mapping[str, Any] | str | Path,
        *,
        project_root: str | Path | None = None,
        registry: Registry | None = None,
        **options: Unpack[OptionKeys],
    ) -> None:
        self.options = Options(**options)
        refuse_misfits(self.options)
        entry = None if self.options.benchmark is None else self.options.benchmark.entry
        if isinstance(cfg, Plan) and entry in (None, cfg.benchmark):
            self.plan = cfg
        else:
            root = None if project_root is None else Path(project_root).absolute()
            self.plan = _plan(cfg, self.options, registry, project_root=root)
        self.nothing_to_do = False
        self._log: Log | None = None
        self._flagged: Mapping[str, Mapping[str, Match]] = {}

    @classmethod
    def from_yaml(
        cls,
        path: str | Path,
        *,
        overrides: Sequence[str] = (),
        registry: Registry | None = None,
        **options: Unpack[OptionKeys],
    ) -> Self:
        """Read and check a file.

        Args:
            path: the experiment file.
            overrides: `path=value` texts, as `evsys run --set` takes them.
            registry: where plugins are looked up, by default in what is installed and the project's own.
            **options: as for the class.

        Raises:
            ConfigError: every problem of the file and of each arm.
        """
        given = Options(**options)
        refuse_misfits(given)
        return cls(_plan(path, given, registry, overrides=overrides), **options)

    @classmethod
    def resume(
        cls,
        directory: str | Path,
        *,
        overrides: Sequence[str] = (),
        registry: Registry | None = None,
        **options: Unpack[OptionKeys],
    ) -> Self:
        """Read an experiment on record, to continue with it: `run` keeps what is done and makes the rest.

        Args:
            directory: the experiment's folder.
            overrides: `path=value` texts that set `budget`, `watchdog` or `max_concurrent_arms` again, or whose values were
                secret when it was launched, so that they aren't on record.
            registry: where plugins are looked up, by default in what is installed and the project's own.
            **options: as for the class; by default as it was launched.

        Raises:
            StoreError: there is no record, or it is of another format.
            ConfigError: it can't be resumed, or its file isn't valid any more.
        """
        experiment, unfinished = cls._from_record(directory, overrides, registry, options, forks=False)
        experiment.plan = original_plan(experiment.plan, unfinished.directory)
        experiment.resumes = unfinished
        return experiment

    @classmethod
    def fork(
        cls,
        directory: str | Path,
        *,
        overrides: Sequence[str] = (),
        registry: Registry | None = None,
        **options: Unpack[OptionKeys],
    ) -> Self:
        """Read an experiment on record, to make a new one that begins at its present state, regardless of later
        changes.

        Its parent is the one on record, which stays as it is. Runs of the same name branch off from its last
        complete checkpoints; everything is evaluated again.

        Args:
            directory: the experiment's folder.
            overrides: `path=value` texts, in addition to those that it was launched with.
            registry: of plugins, by default those installed and the project's own.
            **options: as for the class; by default as it was launched.

        Raises:
            StoreError: there is no record, or it is of another format.
            ConfigError: it is a dry run, or the result isn't valid.
        """
        experiment, unfinished = cls._from_record(directory, overrides, registry, options, forks=True)
        experiment.forks = unfinished.directory
        return experiment

    @classmethod
    def _from_record(
        cls,
        directory: str | Path,
        overrides: Sequence[str],
        registry: Registry | None,
        options: OptionKeys,
        *,
        forks: bool,
    ) -> tuple[Self, Unfinished]:
        """An experiment planned again from its record, and what the record says of how it was launched."""
        given = Options(**options)
        refuse_misfits(given)
        unfinished = Unfinished.read(
            Path(directory), overrides=overrides, injected=injected_names(given), forks=forks
        )
        plan = _plan(
            unfinished.directory / "config.yaml",
            given,
            registry,
            overrides=unfinished.overrides,
            project_root=unfinished.project_root,
            pins=unfinished.stored,
        )
        plan = relocate_plan(plan, unfinished.directory, tuple(overrides))
        parent = unfinished.directory.name if forks else unfinished.parent
        launched = cast("OptionKeys", {**unfinished.options, **options})
        return cls(child_of(plan, parent), **launched), unfinished

    def run(self) -> ExperimentResult:
        """Run to the end.

        Ctrl-C, SIGTERM and SIGHUP end it early: `result` has what was trained and scored, with the status `cancelled`.

        Raises:
            RuntimeError: an event loop runs in this thread already; `await experiment.arun()` there.
            KeyboardInterrupt, SystemExit: it was ended early. `Abandoned`, which is a KeyboardInterrupt, at the second Ctrl-C:
                what didn't end at once was left, and the record may say that it continues until it is resumed.
        """
        try:
            result = run_to_end(
                self.arun,
                call="Experiment.run()",
                instead="result = await experiment.arun()",
                tell=self._note_left,
            )
        except AbandonRequest:
            if self.record is not None:
                self.record.lock.release()
            raise
        return self.result or result

    def _note_left(self, text: str) -> None:
        """Say what couldn't be ended when all was done."""
        if self._log is not None:
            self._log.warning("process.left_running", what=text)
        if self.result is not None:
            self.result = attrs.evolve(self.result, warnings=(*self.result.warnings, text))

    async def arun(self) -> ExperimentResult:
        """Run to the end, inside a running event loop."""
        # Another project's code may have become `src` since this one was read.
        import_project_code(self.plan.project_root, self.plan.registry)
        # Clients that verifiers make while the run continues look for the project's prices.
        with use_registry(self.plan.registry), use_scope(DataScope(project_root=self.plan.project_root)):
            return await self._arun(time.monotonic())

    async def _arun(self, started: float) -> ExperimentResult:
        if self.resumes is not None:
            return await self._resume(self.resumes, started)
        benchmarks = await self._benchmarks()
        checks = await self._graders_checked(benchmarks)
        leaks = await self._leaks()
        session = await to_the_end(
            open_session, self.plan, self.options, benchmarks, self.forks, sources=sources_of(self.plan)
        )
        with session.record.lock:
            self._keep_checks(session, checks)
            for text in leaks:
                session.log.warning("data.leak", what=text)
            return await self._live(session, started)

    async def _resume(self, unfinished: Unfinished, started: float) -> ExperimentResult:
        record = ExperimentRecord.open(unfinished.directory, redactor_of(self.plan))
        if unfinished.complete:
            return self._recorded_result(record)
        with record.lock:
            benchmarks = await self._benchmarks()
            sources = sources_of(self.plan)
            async with self._time_limit("the rows of its runs are read", "data", record.experiment_id):
                session = await in_background(
                    resume_session, record, self.plan, self.options, benchmarks, sources=sources
                )
            if session is None:
                return self._recorded_result(record)
            warned = recorded_grader_warnings(record)
            checks = await self._graders_checked(benchmarks) if warned is None else None
            await to_the_end(reopen, session, unfinished.adjusted)
            record.events.append("experiment.resumed", runs=left_to_do(session))
            if warned is None:
                self._keep_checks(session, checks)
            else:
                session.warnings += warned
            before = float(session.record.facts.get("seconds") or 0.0)
            return await self._live(session, started - before)

    def _recorded_result(self, record: ExperimentRecord) -> ExperimentResult:
        self.result, self.nothing_to_do = result_on_record(record), True
        return self.result

    def _keep_checks(self, session: Session, checks: Sequence[GraderCheck] | None) -> None:
        session.warnings += [warning for check in checks or () for warning in check.warnings]
        keep_grader_checks(session.record, checks, session.log_settings.redactor)

    async def _live(self, session: Session, started: float) -> ExperimentResult:
        """Train and score what is to be trained and scored, and conclude; the record's lock is held."""
        self.record, self._log = session.record, session.log
        self._end_when_lost(session.record)
        with control_channel(session) as self.control:
            return await self._train_and_conclude(session, started)

    async def _train_and_conclude(self, session: Session, started: float) -> ExperimentResult:
        try:
            if self.forks is not None:
                await to_the_end(branch_off, session.record, self.plan)
                session.restart_points = await in_background(
                    restart_points, session.record, self.plan, session.benchmarks
                )
            session.hooks = run_listeners(session, session.log)
            await session.hooks.emit(
                "evsys_experiment_started",
                experiment_id=session.record.experiment_id,
                directory=session.record.directory,
                arms=left_to_do(session),
            )
            if self.on_launch is not None:
                self.on_launch(session.record, self.control)
            await train(session)
            if not self.options.dry:
                self._flagged = await in_background(flagged_tasks, session)
        except EARLY_ENDS as exc:
            leave_live_lines()
            session.record.lock.refuse_if_lost()
            # What was trained and scored so far stays, and the record says how it ended.
            self._end(session, time.monotonic() - started, exc)
            raise
        self.result = conclude_and_write(session, time.monotonic() - started, self._flagged)
        return await self._notify_result(session, self.result)

    @staticmethod
    def _end_when_lost(record: ExperimentRecord) -> None:
        """From here on this task is cancelled where another process takes the record over."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            if task is not None:
                with suppress(RuntimeError):  # the loop is closed: all is over
                    loop.call_soon_threadsafe(task.cancel)

        record.lock.when_lost(cancel)

    async def _graders_checked(self, benchmarks: Sequence[BoundBenchmark]) -> Sequence[GraderCheck] | None:
        """The check of the graders with answers made without a model; None if it isn't requested."""
        if self.options.skip_grader_check:
            return None
        async with self._time_limit("the graders of the benchmarks are checked", "verifier", "benchmark"):
            return await check_graders(
                self.plan.experiment.metadata.benchmarks,
                benchmarks,
                registry=self.plan.registry,
                project_root=self.plan.project_root,
                seed=self.plan.experiment.base_seed,
            )

    async def _leaks(self) -> Sequence[str]:
        """Warnings of benchmark tasks among the rows about to be trained on, and of columns that tasks leave out."""
        if self.options.train_fn is not None:  # what it trains on isn't known
            return ()
        async with self._time_limit("training rows are searched for benchmark tasks", "data", "benchmark"):
            return await in_background(quick_leak_warnings, self.plan, columns=False)

    async def _benchmarks(self) -> Sequence[BoundBenchmark]:
        async with self._time_limit("the benchmarks are read", "data", "benchmark"):
            return await in_background(bound_benchmarks, self.plan, self.options)

    def _time_limit(self, what: str, boundary: str, plugin: str) -> AbstractAsyncContextManager[None]:
        """A block that no watchdog watches yet."""
        seconds = self.plan.experiment.watchdog.floor_seconds
        return beforehand(what, seconds=seconds, boundary=boundary, plugin=plugin)

    async def _notify_result(self, session: Session, result: ExperimentResult) -> ExperimentResult:
        """Let listeners write the prose and hear the result; what they do wrong is added to it."""
        prose = await session.hooks.first(
            "evsys_write_conclusion", result=result, conclusion=result.conclusion
        )
        said = []
        if prose is not None and not isinstance(prose, str):
            said = [f"evsys_write_conclusion gave {type(prose).__name__}, not a string; it was left out"]
            prose = None
        await session.hooks.emit("evsys_experiment_finished", result=result)
        told = map(session.log_settings.redactor.text, (*said, *session.hooks.warnings))
        late = [line for line in told if line not in result.warnings]
        if prose is None and not late and not session.record.plots():
            return result
        self.result = attrs.evolve(result, warnings=(*result.warnings, *late))
        write_down(session, self.result, prose)
        return self.result

    def _end(self, session: Session, seconds: float, ended_by: BaseException) -> None:
        """Put the end on record of an experiment that can't continue."""
        try:
            self.result = conclude_and_write(session, seconds, self._flagged, ended_by=ended_by)
        except StoreError as error:  # a full disk ends both; what came first is what to tell
            ended_by.add_note(f"How it ended couldn't be written down either: {error}")


def _plan(
    cfg: Plan | Document | ExperimentConfig | Mapping[str, Any] | str | Path,
    options: Options,
    registry: Registry | None,
    *,
    overrides: Sequence[str] = (),
    project_root: Path | None = None,
    pins: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """The plan of an experiment run with these options; one that is planned already is checked again, with them."""
    before = None
    if isinstance(cfg, Plan):
        before, cfg = cfg, cfg.document
        registry, overrides, project_root = registry or before.registry, before.overrides, before.project_root
        pins = before.stored
    plan = load_experiment(
        cfg,
        overrides=overrides,
        registry=registry,
        store=options.store,
        pins=pins,
        project_root=project_root,
        benchmark=None if options.benchmark is None else options.benchmark.entry,
    )
    _refuse_beside_launcher(plan, options)
    return plan if before is None else child_of(plan, before.experiment.metadata.parent_experiment_id)


def _refuse_beside_launcher(plan: Plan, options: Options) -> None:
    """The members that a process of its own can't be given, since it reads the experiment's record."""
    given = [*injected_names(options), *(["store"] if options.store is not None else [])]
    if plan.experiment.launcher is not None and given:
        raise ConfigError(
            f"$.launcher: arms in other processes can't be given {' and '.join(given)}",
            hint="leave the launcher out, or write it as a plugin of the project",
        )
