"""An experiment taken up again from its record: what is there, whether it is still the same, what is left to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evsys.errors import ConfigError, StoreError
from evsys.types import EvaluationResult, ExperimentResult
from evsys_record.encoding import now
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.provenance import collect
from evsys_record.result_trees import read_as
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.arm.data import rows_of
from evsys_runtime.experiment.budget.project_budget import share_of
from evsys_runtime.experiment.lineage.restart_point import RestartPoint, is_final, take_up
from evsys_runtime.experiment.lineage.rework import repeated_work
from evsys_runtime.experiment.open_session import session_over
from evsys_runtime.experiment.preflight.data_check import data_key, shape_of
from evsys_runtime.experiment.preflight.grader_checks import GRADER_CHECK
from evsys_runtime.experiment.resume.changes import (
    odd_changes,
    refuse,
    refuse_changes,
    scored_outside_harness,
)
from evsys_runtime.experiment.resume.fork import branch_off
from evsys_runtime.experiment.resume.unfinished_experiments import CONCLUDED
from evsys_runtime.experiment.stages.next_stage import still_to_come
from evsys_runtime.experiment.state.arm_sources import add_recorded_arms
from evsys_runtime.experiment.state.facts import is_simulated
from evsys_runtime.experiment.state.identity import plugin_versions
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.state.remaining_steps import steps_left
from evsys_runtime.experiment.state.resolved_tree import recorded_resolution, resolved_tree
from evsys_runtime.experiment.state.secrets import redactor_of
from evsys_runtime.experiment.state.session import ArmSource, Session, run_id_of
from evsys_runtime.experiment.state.starting_weights import untrained_key

__all__ = [
    "left_to_do",
    "recorded_grader_warnings",
    "reopen",
    "restart_points",
    "result_on_record",
    "resume_session",
    "to_resume",
]


def resume_session(
    record: ExperimentRecord,
    plan: Plan,
    options: Options,
    benchmarks: Sequence[BoundBenchmark],
    *,
    sources: Sequence[ArmSource] = (),
) -> Session | None:
    """Take an experiment up again, as far as that is reading; blocking. Call it with the record's lock held.

    Returns:
        The session, in which completed runs have their results; None where nothing is left to do.

    Raises:
        ConfigError: something that its results depend on has changed, or a limit is set below what is spent.
        DataError, PluginError, StoreError: what it is made of can't be read.
    """
    redactor = redactor_of(plan)
    refuse_changes(record, plan, benchmarks, redactor)
    record.recover()
    plan = add_recorded_arms(plan, record, sources)
    branch_off(record, plan)
    taken = restart_points(record, plan, benchmarks)
    ended = {run_id: found.ended for run_id, found in taken.items() if found.ended is not None}
    facts = record.facts
    concluded = facts["finished"] is not None and facts["status"] in CONCLUDED
    if concluded and not still_to_come(plan, ended, benchmarks):
        return None
    limits = share_of(plan, record.experiment_id)
    session = session_over(record, plan, options, benchmarks, redactor, limits=limits, sources=sources)
    session.scores_outside_harness = scored_outside_harness(record)
    session.results.update(ended)
    session.restart_points = taken
    _count_once(session)
    _refuse_low_limits(session)
    _refuse_changed_runs(session)
    _share(session)
    session.warnings += odd_changes(record, plan)
    return session


def reopen(session: Session, adjusted: Sequence[str]) -> None:
    """Put on record that the experiment continues, and what was set again for that; what it had concluded is set aside."""
    record, plan = session.record, session.plan
    then = recorded_resolution(record)
    if then is None or len(then["arms"]) < len(plan.arms):  # it was killed before, or the file is damaged
        record.write_resolved(resolved_tree(plan, session.benchmarks))
    launched = {"time": now(), "provenance": collect(plan.project_root)}
    record.reopen(resumed=[*record.facts.get("resumed", ()), launched], adjusted=list(adjusted))


def left_to_do(session: Session) -> list[str]:
    """The runs that aren't done, in the order of the plan."""
    ids = map(run_id_of, session.plan.arms)
    return [run_id for run_id in ids if run_id not in session.results]


def to_resume(session: Session) -> list[str]:
    """The runs that a resume continues with, in the order of the plan.

    Raises:
        StoreError: the record of a run can't be read.
    """
    ended = {}
    for run_id, result in session.results.items():
        run = None if result.run_dir is None else session.record.find_run(run_id)
        if (run is None and result.status == "stopped") or (run is not None and is_final(result, run)):
            ended[run_id] = result
    return still_to_come(session.plan, ended, session.benchmarks)


def result_on_record(record: ExperimentRecord) -> ExperimentResult:
    """How an experiment ended, from its files.

    Raises:
        StoreError: they can't be read.
    """
    tree = record.read_result()
    if tree is None:
        raise StoreError(f"{record.directory} has no conclusion", path=str(record.directory))
    return read_as(ExperimentResult, tree)


def recorded_grader_warnings(record: ExperimentRecord) -> list[str] | None:
    """The warnings of the grader check when the experiment began; None if it is to be made, or repeated."""
    path = record.directory / GRADER_CHECK
    if not path.exists():
        return None
    try:
        return [warning for check in read_json(path)["benchmarks"] for warning in check["warnings"]]
    except (StoreError, KeyError, TypeError):  # damaged; it is written again
        return None


def restart_points(
    record: ExperimentRecord, plan: Plan, benchmarks: Sequence[BoundBenchmark]
) -> dict[str, RestartPoint]:
    """The restart points of an experiment's runs, by run, after `ExperimentRecord.recover`.

    Raises:
        StoreError, ConfigError: a record can't be read.
    """
    found = {}
    for arm in plan.arms:
        run = record.find_run(run_id_of(arm))
        if run is not None:
            found[run_id_of(arm)] = take_up(run, benchmarks)
    return found


def _count_once(session: Session) -> None:
    """Give the budget the usage of repeated work, as far as that can be read; unreadable parts count as spent."""
    budget = session.budget
    if budget is None:
        return
    for run_id, found in session.restart_points.items():
        run = session.record.find_run(run_id)
        if run is None or found.attempt is None:
            continue
        try:
            budget.add_rework(run_id, repeated_work(run, found))
        except (StoreError, KeyError, TypeError) as error:
            session.warnings.append(f"what {run_id} used twice isn't known, and counts twice: {error}")


def _refuse_low_limits(session: Session) -> None:
    """A limit set again and is below what is spent already would pay for nothing."""
    budget = session.budget
    if budget is None:
        return
    before = (session.record.facts.get("budget") or {}).get("limits", {})
    low = budget.limits_below_spending(before)
    if not low:
        return
    needed = _steps_needed(session, budget.spending("steps")) if "steps" in low else None
    enough = "" if needed is None else f"; budget.steps={needed:.0f} pays for what is left"
    raise ConfigError(
        f"{session.record.experiment_id} can't continue with less than is spent: {'; '.join(map(budget.words, low))}",
        hint=f"raise {', '.join(f'budget.{name}' for name in low)} above that{enough}",
    )


def _steps_needed(session: Session, spent: float) -> float | None:
    """The limit of steps that pays for the runs that aren't done; None where their files don't say how many they make."""
    for arm in session.plan.arms:
        left = 0 if run_id_of(arm) in session.results else steps_left(session, arm)
        if left is None:
            return None
        spent += left
    return spent


def _refuse_changed_runs(session: Session) -> None:
    """Load the rows of each run that continues, and compare them, and its plugins, with what it had."""
    problems: list[str] = []
    loaded: dict[str, MaterializedDataset] = {}
    for arm in session.plan.arms:
        run_id = run_id_of(arm)
        run = None if run_id in session.results else session.record.find_run(run_id)
        facts: Mapping[str, Any] = {} if run is None else run.facts
        if run is None or "data" not in facts:  # nothing was made of its rows yet
            continue
        versions = plugin_versions(session.plan.registry, arm.run)
        for name, then in facts["plugins"].items():
            if versions.get(name) != then:
                problems.append(f"{run_id}: {name} was {then} and is {versions.get(name, 'not used')}")
        data = _load_rows(session, arm, loaded)
        if data.fingerprint != facts["data"]["fingerprint"]:
            problems.append(
                f"{run_id}: the rows have changed since ({facts['data']['fingerprint']} then, {data.fingerprint} now)"
            )
        session.datasets[run_id] = data
    refuse(session.record, problems)


def _load_rows(
    session: Session, arm: ArmConfig, loaded: dict[str, MaterializedDataset]
) -> MaterializedDataset:
    """The rows of a run; runs that have the same get one object."""
    shape = shape_of(session.plan, arm)
    key = data_key(arm, shape, session.seeds(arm)("data"))
    if key not in loaded:
        loaded[key] = rows_of(session, arm, shape, session.record.run(run_id_of(arm)).directory)
    return loaded[key]


def _share(session: Session) -> None:
    """Let the other runs have the scores that are on record and that runs share."""
    for arm in session.plan.arms:
        taken = session.restart_points.get(run_id_of(arm))
        if taken is None:
            continue
        scored: Sequence[EvaluationResult] = taken.ended.evaluations if taken.ended else taken.scored
        run = None if taken.ended is None else session.record.find_run(run_id_of(arm))
        if run is not None and is_simulated(session.plan, arm, run.facts):
            session.simulated.add(arm.run.backend.kind)
        by_name = {benchmark.name: benchmark for benchmark in session.benchmarks_of(arm)}
        for result in scored:
            if not result.fully_scored or result.benchmark not in by_name or result.step > 0:
                continue
            if result.model is not None:
                session.compared.remember(f"{result.benchmark}@{result.model}", result)
                continue
            benchmark = by_name[result.benchmark]
            key = untrained_key(arm, benchmark, session.plan.registry, session.seeds(arm))
            session.untrained.remember(key, result)
