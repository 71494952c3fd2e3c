"""Endpoints: one run, its curves, logs, events and rollouts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import sqlalchemy as sa

from evsys.errors import StoreError
from evsys_dashboard.api.endpoints import Call, Endpoints, limit
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.experiments import past_run, tree_of
from evsys_dashboard.api.service import experiment_row, run_row
from evsys_dashboard.api.shapes import (
    Curve,
    Curves,
    Events,
    FileState,
    LogLine,
    LogLines,
    RolloutAnswer,
    RolloutRow,
    Rollouts,
    RunAnswer,
    SeriesRow,
)
from evsys_dashboard.api.token_texts import token_texts
from evsys_dashboard.ingest.lines import whole_lines
from evsys_dashboard.store.curves import live_buckets
from evsys_dashboard.store.database import clean
from evsys_dashboard.store.tables import file, rollout, run, series
from evsys_record.attempts import Attempt, lineage
from evsys_record.encoding import as_tree
from evsys_record.events import read_events
from evsys_record.files import open_to_read, storing
from evsys_record.jsonl import read_jsonl

__all__ = ["endpoints"]

endpoints = Endpoints()

_RUN = "/projects/{project}/experiments/{experiment}/runs/{run}"
_MOST_BYTES = 4 << 20
_LONGEST_LINE = 32 << 20


@attrs.frozen(kw_only=True)
class CurvesQuestion:
    """Which curves: those named `name`, of the runs named, or of all; at most `points` buckets each."""

    name: tuple[str, ...] = ()
    phase: Literal["training", "validation", "test"] = "training"
    run: tuple[str, ...] = ()
    points: int = limit(500, most=2000)


@attrs.frozen(kw_only=True)
class LinesQuestion:
    """Which lines of a log: those from the place `after` on, or the last ones; those that end at `before`."""

    after: int | None = None
    before: int | None = None
    limit: int = limit(200, most=2000)


@attrs.frozen(kw_only=True)
class EventsQuestion:
    """Which events: those with numbers above `after`."""

    after: int = 0
    limit: int = limit(1000, most=10_000)


@attrs.frozen(kw_only=True)
class RolloutsQuestion:
    """Which rollouts: of a phase, a benchmark entry, a task, a step, with a score within bounds; `after` is the `next` of the page before."""

    phase: Literal["training", "validation", "test"] = "training"
    benchmark: str | None = None
    task: str | None = None
    step: int | None = None
    low: float | None = None
    high: float | None = None
    after: int | None = None
    limit: int = limit(100, most=1000)


@endpoints.get(_RUN)
async def one_run(call: Call) -> RunAnswer:
    """One run."""
    folder = await _folder(call)

    def find(connection: sa.Connection) -> RunAnswer:
        owner = experiment_row(connection, call["project"], call["experiment"])
        row = run_row(connection, owner["id"], call["run"])
        return RunAnswer(
            id=row["name"],
            version=row["version"],
            run=past_run(row["document"], owner["status"]),
            facts=tree_of(folder / "run.json") or {},
            result=tree_of(folder / "run_result.json"),
            attempts=tuple(json.loads(row["attempts"] or "[]")),
            series=tuple(_series(connection, row["id"])),
            checkpoints=tuple(_checkpoints(folder)),
            rollouts=_counts(connection, row["id"]),
            files=tuple(_files(connection, owner["id"], row["name"])),
        )

    return await call.service.read(find)


@endpoints.get("/projects/{project}/experiments/{experiment}/curves")
async def curves(call: Call, query: CurvesQuestion) -> Curves:
    """Curves of an experiment's runs, downsampled to the extremes of buckets."""

    def find(connection: sa.Connection) -> Curves:
        owner = experiment_row(connection, call["project"], call["experiment"])
        chosen = (
            sa.select(
                *(series.c[name] for name in ("id", "name", "blocks", "tail_attempt", "tail")),
                *(run.c.name.label("run"), run.c.document, run.c.attempts),
            )
            .join(run, run.c.id == series.c.run_id)
            .where(run.c.experiment_id == owner["id"], series.c.phase == query.phase)
            .order_by(run.c.id, series.c.id)
        )
        if query.name:
            chosen = chosen.where(series.c.name.in_(map(clean, query.name)))
        if query.run:
            chosen = chosen.where(run.c.name.in_(map(clean, query.run)))
        rows = connection.execute(chosen).mappings().all()
        return Curves(
            version=owner["version"],
            curves=tuple(_curve(connection, row, query) for row in rows),
        )

    return await call.service.read(find)


@endpoints.get("/projects/{project}/experiments/{experiment}/events")
async def events(call: Call, query: EventsQuestion) -> Events:
    """The events of an experiment."""
    folder = await _folder(call, of_run=False)

    def read() -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for event in read_events(folder, after=query.after):
            found.append(as_tree(event))
            if len(found) == query.limit:
                break
        return found

    found = await asyncio.to_thread(read)
    return Events(events=tuple(found), cursor=found[-1]["seq"] if found else query.after)


@endpoints.get("/projects/{project}/experiments/{experiment}/log")
async def experiment_log(call: Call, query: LinesQuestion) -> LogLines:
    """Lines of an experiment's own log."""
    folder = await _folder(call, of_run=False)
    return await asyncio.to_thread(_log_lines, folder / "experiment.log.jsonl", query)


@endpoints.get(f"{_RUN}/log")
async def run_log(call: Call, query: LinesQuestion) -> LogLines:
    """Lines of a run's log."""
    folder = await _folder(call)
    return await asyncio.to_thread(_log_lines, folder / "run.log.jsonl", query)


@endpoints.get(f"{_RUN}/rollouts")
async def rollouts(call: Call, query: RolloutsQuestion) -> Rollouts:
    """Live rollouts of a run, in the order in which they were made."""

    def find(connection: sa.Connection) -> Rollouts:
        owner = experiment_row(connection, call["project"], call["experiment"])
        row = run_row(connection, owner["id"], call["run"])
        chosen = [rollout.c.run_id == row["id"], *_filters_of(query), *_live(row["attempts"])]
        total = connection.execute(
            sa.select(sa.func.count()).select_from(rollout).where(*chosen)
        ).scalar_one()
        if query.after is not None:
            chosen.append(rollout.c.place > query.after)
        page = sa.select(rollout).where(*chosen).order_by(rollout.c.place).limit(query.limit + 1)
        found = [_rollout_row(each) for each in connection.execute(page).mappings()]
        more = len(found) > query.limit
        shown = found[: query.limit]
        return Rollouts(total=total, rollouts=tuple(shown), next=shown[-1].place if more else None)

    return await call.service.read(find)


@endpoints.get(f"{_RUN}/rollouts/{{phase}}/{{place}}")
async def one_rollout(call: Call) -> RolloutAnswer:
    """One rollout, whole."""
    phase, place = call["phase"], call["place"]
    if phase not in {"training", "validation", "test"} or not place.isdecimal() or len(place) > 18:
        raise RefusedError(404, f"there is no rollout {phase}/{place}")
    folder = await _folder(call)

    def find(connection: sa.Connection) -> RolloutAnswer:
        owner = experiment_row(connection, call["project"], call["experiment"])
        row = run_row(connection, owner["id"], call["run"])
        of_file = (rollout.c.run_id == row["id"]) & (rollout.c.phase == phase)
        found = (
            connection.execute(sa.select(rollout).where(of_file, rollout.c.place == int(place)))
            .mappings()
            .one_or_none()
        )
        if found is None:
            raise RefusedError(404, f"there is no rollout {phase}/{place}")
        before = sa.select(sa.func.max(rollout.c.place)).where(of_file, rollout.c.place < int(place))
        behind = sa.select(sa.func.min(rollout.c.place)).where(of_file, rollout.c.place > int(place))
        path = folder / phase / "rollouts.jsonl"
        with open_to_read(path) as stream, storing(path, "read"):
            stream.seek(found["place"])
            line = json.loads(stream.read(found["length"]))
        return RolloutAnswer(
            row=_rollout_row(found),
            line=line,
            texts=token_texts(
                past_run(row["document"], owner["status"]).model,
                (line.get("rollout") or {}).get("turns") or (),
            ),
            previous=connection.execute(before).scalar(),
            next=connection.execute(behind).scalar(),
        )

    return await call.service.read(find)


async def _folder(call: Call, *, of_run: bool = True) -> Path:
    """The folder of the run that the path names, or of the experiment, once the database knows that it is there."""

    def know(connection: sa.Connection) -> None:
        owner = experiment_row(connection, call["project"], call["experiment"])
        if of_run:
            run_row(connection, owner["id"], call["run"])

    await call.service.read(know)
    folder = await asyncio.to_thread(call.service.records.experiment, call["project"], call["experiment"])
    return folder / "runs" / call["run"] if of_run else folder


def _series(connection: sa.Connection, run_id: int) -> Iterator[SeriesRow]:
    columns = [series.c[field.name] for field in attrs.fields(SeriesRow)]
    query = sa.select(*columns).where(series.c.run_id == run_id).order_by(series.c.phase.desc(), series.c.id)
    for row in connection.execute(query).mappings():
        yield SeriesRow(**row)


def _checkpoints(folder: Path) -> Iterator[Mapping[str, Any]]:
    try:
        yield from read_jsonl(folder / "checkpoints.jsonl", missing_ok=True)
    except StoreError as exc:
        yield {"problem": str(exc)}


def _counts(connection: sa.Connection, run_id: int) -> dict[str, int]:
    query = (
        sa.select(rollout.c.phase, sa.func.count().label("number"))
        .where(rollout.c.run_id == run_id)
        .group_by(rollout.c.phase)
    )
    return {row.phase: row.number for row in connection.execute(query)}


def _files(connection: sa.Connection, experiment_id: int, name: str) -> Iterator[FileState]:
    query = (
        sa.select(file.c.path, file.c.size, file.c.digest)
        .where(file.c.experiment_id == experiment_id, file.c.digest != "")
        .where(file.c.path.startswith(f"runs/{name}/", autoescape=True))
        .order_by(file.c.path)
    )
    for path, size, digest in connection.execute(query):
        yield FileState(file=path, size=size, digest=digest)


def _curve(connection: sa.Connection, row: sa.RowMapping, query: CurvesQuestion) -> Curve:
    found = live_buckets(connection, row, json.loads(row["attempts"] or "[]"), query.points)
    past = json.loads(row["document"] or "{}")
    return Curve(
        run=row["run"],
        arm=past.get("label"),
        repeat=past.get("repeat"),
        phase=query.phase,
        name=row["name"],
        total=found.total,
        steps=tuple(found.steps),
        low=tuple(found.low),
        high=tuple(found.high),
        counts=tuple(found.counts),
    )


def _filters_of(query: RolloutsQuestion) -> Iterator[sa.ColumnElement[bool]]:
    yield rollout.c.phase == query.phase
    for column, value in (("benchmark", query.benchmark), ("task", query.task)):
        if value is not None:
            yield rollout.c[column] == clean(value)
    if query.step is not None:
        yield rollout.c.step == query.step
    if query.low is not None:
        yield rollout.c.score >= query.low
    if query.high is not None:
        yield rollout.c.score <= query.high


def _live(attempts: str | None) -> Sequence[sa.ColumnElement[bool]]:
    """That no later attempt replaced it."""
    bounds = lineage([Attempt(**each) for each in json.loads(attempts or "[]")])
    if not bounds:
        return ()
    live = [
        (rollout.c.attempt == attempt) & (sa.true() if bound is None else rollout.c.step <= bound)
        for attempt, bound in bounds.items()
    ]
    return (sa.or_(*live),)


def _rollout_row(row: sa.RowMapping) -> RolloutRow:
    names = ("phase", "place", "attempt", "step", "benchmark", "task", "sample")
    score = row["score"]
    return RolloutRow(
        **{name: row[name] for name in names},
        **json.loads(row["facts"]),
        score=score,
    )


def _log_lines(path: Path, query: LinesQuestion) -> LogLines:
    """Lines of a log, from a place on, or those that end at one: by default, at the end of the file."""
    try:
        stream = open_to_read(path)
    except StoreError:
        if path.exists():
            raise
        return LogLines(lines=(), cursor=0, before=0)
    with stream, storing(path, "read"):
        size = stream.seek(0, 2)
        if query.after is not None:
            start = min(max(query.after, 0), size)
            stream.seek(start)
            data = stream.read(_MOST_BYTES)
            if b"\n" not in data:
                data += stream.readline(_LONGEST_LINE)
            found = list(_parse_lines(data, start))[: query.limit]
            end = start + data.rfind(b"\n") + 1
            if len(found) == query.limit:
                end = found[-1][1]
        else:
            end = size if query.before is None else min(max(query.before, 0), size)
            start = max(0, end - _MOST_BYTES)
            stream.seek(start)
            data = stream.read(end - start)
            if start:  # in the middle of a line
                skipped = data.find(b"\n") + 1
                start, data = start + skipped, data[skipped:]
            found = list(_parse_lines(data, start))[-query.limit :]
            end = start + data.rfind(b"\n") + 1
    lines = tuple(line for line, _ in found)
    return LogLines(lines=lines, cursor=end, before=lines[0].place if lines else start)


def _parse_lines(data: bytes, start: int) -> Iterator[tuple[LogLine, int]]:
    """Each line with its end; one that isn't JSON as a text."""
    for place, line in whole_lines(data):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = {"event": line.decode("utf-8", "replace").strip()}
        if not isinstance(values, dict):
            values = {"event": str(values)}
        yield LogLine(place=start + place, values=values), start + place + len(line)
