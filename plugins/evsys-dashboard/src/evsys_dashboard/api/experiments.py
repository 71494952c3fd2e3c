"""Endpoints: projects, their experiments, and what is in one of them."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import sqlalchemy as sa

from evsys.errors import StoreError
from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.service import experiment_row, project_version, shown_version
from evsys_dashboard.api.shapes import (
    ExperimentAnswer,
    ExperimentRow,
    Experiments,
    FileState,
    Health,
    Project,
    Projects,
)
from evsys_dashboard.store.listing import ExperimentsQuestion, find_experiments
from evsys_dashboard.store.tables import experiment, file, project, run, series
from evsys_record import PastExperiment, PastRun
from evsys_record.files import open_to_read, storing
from evsys_record.past import Mark
from evsys_record.past_files import PLANNED, STARTED, planned_run, read_experiment
from evsys_record.result_trees import read_as

__all__ = ["endpoints", "past_run", "text_of", "tree_of"]

endpoints = Endpoints()

_ROW = frozenset(field.name for field in attrs.fields(ExperimentRow)) & frozenset(
    field.name for field in attrs.fields(PastExperiment)
)
_CHECKS = ("data_check.json", "grader_check.json", "audit.json")


@endpoints.get("/health", scope=None)
async def health(call: Call) -> Health:
    """Whether the server runs."""
    from importlib.metadata import version

    return Health(status="ok", version=version("evsys-dashboard"), local=call.service.local is not None)


@endpoints.get("/projects")
async def projects(call: Call) -> Projects:
    """The projects that the key may read."""
    counted = sa.select(sa.func.count()).where(experiment.c.project_id == project.c.id).scalar_subquery()
    query = sa.select(project.c.name, shown_version(), counted).order_by(project.c.name)
    rows = await call.service.read(lambda connection: connection.execute(query).all())
    found = [Project(name=name, version=version, experiments=count) for name, version, count in rows]
    return Projects(
        projects=tuple(each for each in found if call.access.may("read", each.name)),
        scopes=tuple(sorted(call.access.scopes)),
        local=call.service.local is not None,
        control=call.service.local is not None,
    )


@endpoints.get("/projects/{project}/experiments")
async def experiments(call: Call, query: ExperimentsQuestion) -> Experiments:
    """The experiments of a project, the newest first."""
    name = call["project"]

    def find(connection: sa.Connection) -> Experiments:
        version = project_version(connection, name)
        total, rows = find_experiments(connection, name, query)
        return Experiments(
            total=total,
            version=version,
            experiments=tuple(map(_row, rows)),
            facets=call.service.facets(connection, name),
        )

    return await call.service.read(find)


@endpoints.get("/projects/{project}/experiments/{experiment}")
async def one_experiment(call: Call) -> ExperimentAnswer:
    """One experiment, with all of its runs."""
    owner, name = call["project"], call["experiment"]
    folder = await asyncio.to_thread(call.service.records.experiment, owner, name)
    return await call.service.read(lambda connection: _experiment(connection, owner, name, folder))


def _row(row: sa.RowMapping) -> ExperimentRow:
    document = json.loads(row["document"])
    return ExperimentRow(
        **{
            **{name: _tuple(document[name]) for name in _ROW},
            "id": row["name"],
            "version": row["version"],
            "seen": row["seen"],
            "marks": tuple(Mark(**mark) for mark in document["marks"]),
            "cost_usd": None if document["usage"] is None else document["usage"]["cost_usd"],
            "runs_completed": row["runs_completed"],
        }
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _experiment(connection: sa.Connection, owner: str, name: str, folder: Path) -> ExperimentAnswer:
    row = experiment_row(connection, owner, name)
    past = read_as(PastExperiment, json.loads(row["document"]))
    facts = tree_of(folder / "experiment.json") or {}
    runs = tuple(_runs(connection, row["id"], folder, past.status))
    completed = sum(each.status == "completed" for each in runs)
    children = sa.select(experiment.c.name).where(
        experiment.c.project_id == row["project_id"], experiment.c.parent == name
    )
    parent = (
        None if past.parent is None or "/" in past.parent else folder.parent / past.parent / "config.yaml"
    )
    return ExperimentAnswer(
        id=name,
        version=row["version"],
        seen=row["seen"],
        experiment=attrs.evolve(past, runs=len(runs), runs_completed=completed),
        facts=facts,
        conclusion=tree_of(folder / "conclusion.json"),
        hypothesis=text_of(folder / "hypothesis.md"),
        conclusion_text=text_of(folder / "conclusion.md"),
        config=text_of(folder / "config.yaml"),
        parent_config=None if parent is None else text_of(parent),
        warnings=tuple(map(str, facts.get("warnings") or ())),
        runs=runs,
        children=tuple(sorted(connection.execute(children).scalars())),
        series=_series(connection, row["id"]),
        checks={path: tree for path in _CHECKS if (tree := tree_of(folder / path)) is not None},
        files=tuple(_files(connection, row["id"])),
    )


def _runs(connection: sa.Connection, experiment_id: int, folder: Path, status: str) -> Iterator[PastRun]:
    """Runs with a record, and those planned, in the order of the plan."""
    query = sa.select(run.c.document).where(run.c.experiment_id == experiment_id, run.c.document.is_not(None))
    found = {
        past.run_id: past for past in (past_run(text, status) for text in connection.execute(query).scalars())
    }
    read = read_experiment(folder)
    for run_id in read.arms:
        past = found.pop(run_id, None)
        yield _with_status(planned_run(run_id, read), status) if past is None else past
    yield from (found[run_id] for run_id in sorted(found))


def past_run(document: str, status: str) -> PastRun:
    """The run of a row, with its status as that of its experiment has it."""
    return _with_status(read_as(PastRun, json.loads(document)), status)


def _with_status(past: PastRun, status: str) -> PastRun:
    running = status == "running"
    words = {
        STARTED: "running" if running else "crashed",
        PLANNED: "waiting" if running else "skipped",
    }
    return attrs.evolve(past, status=words.get(past.status, past.status))


def _series(connection: sa.Connection, experiment_id: int) -> dict[str, tuple[str, ...]]:
    query = (
        sa.select(series.c.phase, series.c.name)
        .join(run, run.c.id == series.c.run_id)
        .where(run.c.experiment_id == experiment_id)
        .distinct()
    )
    found: dict[str, list[str]] = {}
    for phase, name in connection.execute(query):
        found.setdefault(phase, []).append(name)
    return {phase: tuple(sorted(names)) for phase, names in sorted(found.items())}


def _files(connection: sa.Connection, experiment_id: int) -> Sequence[FileState]:
    query = (
        sa.select(file.c.path, file.c.size, file.c.digest)
        .where(file.c.experiment_id == experiment_id, file.c.digest != "", file.c.path.not_like("runs/%"))
        .order_by(file.c.path)
    )
    return [
        FileState(file=path, size=size, digest=digest) for path, size, digest in connection.execute(query)
    ]


def text_of(path: Path) -> str | None:
    """The text of a file of a record; None without one.

    Raises:
        StoreError: it can't be read, or is no regular file.
    """
    try:
        with open_to_read(path) as stream, storing(path, "read"):
            return stream.read().decode("utf-8", "replace")
    except StoreError as exc:
        if exc.facts.get("number") == errno.ENOENT:
            return None
        raise


def tree_of(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file of a record; None without one, or where it holds anything else."""
    text = text_of(path)
    try:
        tree = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None
