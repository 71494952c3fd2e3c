"""Summaries of experiments and runs for lists: read by the code that reads records, kept as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import sqlalchemy as sa

from evsys.errors import EvsysError
from evsys_dashboard.store.database import Database, clean
from evsys_dashboard.store.records import Records
from evsys_dashboard.store.tables import experiment, label, project, run
from evsys_record import PastExperiment, PastRun
from evsys_record.encoding import as_tree
from evsys_record.experiment_record import RUNNING, running_or_crashed
from evsys_record.files import read_json
from evsys_record.marks import marks_of
from evsys_record.past_files import ReadExperiment, read_experiment, read_run

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["DATA_LABEL", "Summaries", "data_label"]

DATA_LABEL = "data"
"""The kind of an experiment's labels that name the versions of stored data it used."""


class Summaries:
    """Keeps the rows of experiments and runs as new as their files.

    Args:
        database: where they are kept.
        records: the files.
        local: the records are written on this machine, so whether a process still runs can be known.
        log: gets a warning for each version of a record that can't be read; such a record holds no other up.
    """

    def __init__(self, database: Database, records: Records, *, local: bool, log: Log | None = None) -> None:
        self._database = database
        self._records = records
        self._local = local
        self._log = log

    def refresh(self, project_name: str | None = None) -> int:
        """Read what changed; the number of experiments that did."""
        query = (
            sa.select(
                project.c.name,
                experiment.c.id,
                experiment.c.name,
                experiment.c.version,
                experiment.c.summarised,
            )
            .join(project, project.c.id == experiment.c.project_id)
            .where(experiment.c.summarised < experiment.c.version)
        )
        if project_name is not None:
            query = query.where(project.c.name == project_name)
        with self._database.reading() as connection:
            stale = connection.execute(query).all()
        for owner, experiment_id, name, version, before in stale:
            try:
                self._summarise(owner, experiment_id, name, version, before)
            except EvsysError as exc:
                if self._log is not None:
                    self._log.warning(
                        "dashboard.summary_failed", project=owner, experiment=name, error=str(exc)
                    )
                self._pass_over(experiment_id, version)
        return len(stale)

    def running(self, project_name: str) -> list[str]:
        """The experiments listed as running."""
        query = (
            sa.select(experiment.c.name)
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == project_name, experiment.c.status == RUNNING)
        )
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def _pass_over(self, experiment_id: int, version: int) -> None:
        """Count a version that can't be read as read: until it is, no later change of the project would be announced."""
        stale = (experiment.c.id == experiment_id) & (experiment.c.summarised < version)
        with self._database.writing() as connection:
            connection.execute(sa.update(experiment).where(stale).values(summarised=version))

    def _summarise(self, owner: str, experiment_id: int, name: str, version: int, before: int) -> None:
        folder = self._records.experiment(owner, name)
        found = read_experiment(folder)
        query = sa.select(run.c.id, run.c.name).where(
            run.c.experiment_id == experiment_id, run.c.version > before
        )
        with self._database.reading() as connection:
            changed = connection.execute(query).all()
        runs = [
            {"id": number, **_run_row(folder / "runs" / name, found)}
            for number, name in changed
            if (folder / "runs" / name / "run.json").is_file()
        ]
        past = found.past
        if past.status == RUNNING and self._local:
            past = attrs.evolve(past, status=running_or_crashed(folder))
        past = attrs.evolve(past, runs=len(found.arms))
        row = {
            "summarised": version,
            **_experiment_row(attrs.evolve(past, marks=marks_of(past)), found.words),
        }
        labels = [
            {"experiment_id": experiment_id, **each} for each in (*_labels(past), *_data_labels(folder))
        ]
        with self._database.writing() as connection:
            self._database.update(connection, run, runs)
            connection.execute(
                sa.update(experiment)
                .where(experiment.c.id == experiment_id, experiment.c.summarised <= version)
                .values(row)
            )
            connection.execute(sa.delete(label).where(label.c.experiment_id == experiment_id))
            if labels:
                connection.execute(sa.insert(label), labels)


def data_label(kind: str, version: str) -> str:
    """The label of an experiment that used a version."""
    return f"{kind}/{version}"


def _experiment_row(past: PastExperiment, words: str) -> dict[str, Any]:
    return {
        "title": _text(past.name),
        "status": clean(past.status),
        "dry": past.dry,
        "moment": clean(past.moment),
        "verdict": _text(past.verdict),
        "effect": past.effect,
        "cost": None if past.usage is None else past.usage.cost_usd,
        "seconds": past.seconds,
        "parent": _text(past.parent),
        "words": clean(words).lower(),
        "document": json.dumps(as_tree(past)),
    }


def _run_row(folder: Path, found: ReadExperiment) -> dict[str, Any]:
    past: PastRun = read_run(folder, found).past
    attempts: Sequence[Any] = ()
    if past.status != "unreadable":
        attempts = read_json(folder / "run.json")["attempts"]
    document = json.dumps(as_tree(past))
    return {"status": clean(past.status), "document": document, "attempts": json.dumps(list(attempts))}


def _labels(past: PastExperiment) -> Iterator[dict[str, str]]:
    found = {("tag", tag) for tag in past.tags}
    found |= {("plugin", name) for name in (*past.algorithms, *past.backends)}
    found |= {("model", name) for name in past.models}
    if past.project_goal_id:
        found.add(("goal", past.project_goal_id))
    for kind, value in sorted({(kind, clean(value)) for kind, value in found}):
        yield {"kind": kind, "value": value}


def _data_labels(folder: Path) -> Iterator[dict[str, str]]:
    """The versions of stored data that an experiment used."""
    try:
        stored = read_json(folder / "experiment.json").get("stored_data")
    except EvsysError:  # the experiment is listed regardless
        return
    found = set()
    for place, version in stored.items() if isinstance(stored, dict) else ():
        if isinstance(version, dict) and isinstance(version.get("id"), str):
            found.add(data_label(place.partition("/")[0], version["id"]))
    for value in sorted(map(clean, found)):
        yield {"kind": DATA_LABEL, "value": value}


def _text(value: str | None) -> str | None:
    return None if value is None else clean(value)
