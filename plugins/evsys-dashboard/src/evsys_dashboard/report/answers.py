"""The answers that the pages of one experiment ask for, from a server that runs for as long."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import attrs

from evsys.errors import StoreError
from evsys_dashboard.api.app import PREFIX, application
from evsys_dashboard.api.service import Service
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.push.follow import LocalTarget
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.store.database import Database, clean, sqlite_url
from evsys_dashboard.store.records import LocalRecords
from evsys_dashboard.store.summaries import Summaries
from evsys_record import refuse_links
from evsys_runtime.serving.server import listening

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Tell", "address_part", "answers_of", "query_text"]

type Tell = Callable[[str], object]

FEATURES = ("experiments", "compare", "events")
PHASES = ("training", "validation", "test")
POINTS = 300
"""Buckets of a curve: more than fit on a screen beside each other."""

MOST_LISTED = 1000
"""Rollouts that one request gives."""


async def answers_of(directory: Path, *, rollouts: int = 100, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Every answer that the pages of an experiment ask for, by its address below `/api/v1`.

    Args:
        directory: the experiment's folder.
        rollouts: the most to keep of each run and phase, and of each compared arm.
        tell: called with each thing that is left out.

    Raises:
        StoreError: the record can't be read, or a link in it leads to files outside it, which no one meant to send.
    """
    import aiohttp

    refuse_links(directory)
    project = clean(directory.parents[2].name) or "project"
    with tempfile.TemporaryDirectory(prefix="evsys-report-") as folder:
        database = await asyncio.to_thread(Database, sqlite_url(Path(folder) / "report.sqlite"))
        try:
            service = await asyncio.to_thread(_read, directory, database, project)
            server = listening(application(service()), "127.0.0.1", 0)
            async with server as address, aiohttp.ClientSession() as session:
                collector = _Collector(session, address, project, directory.name, rollouts, tell)
                return await collector.collect()
        finally:
            database.close()


def _read(directory: Path, database: Database, project: str) -> Callable[[], Service]:
    """Take one experiment into a database."""
    records = LocalRecords(directory.parent)
    ingest = Ingest(database, keep_bytes=False)
    ingest.add_project(project)
    summaries = Summaries(database, records, local=True)
    pusher = Pusher(directory, LocalTarget(ingest, project))
    while pusher.push():
        pass
    summaries.refresh()

    def service() -> Service:
        return Service(database=database, records=records, ingest=ingest, summaries=summaries, local=project)

    return service


@attrs.define
class _Collector:
    session: aiohttp.ClientSession
    address: str
    project: str
    experiment: str
    rollouts: int
    tell: Tell
    answers: dict[str, Any] = attrs.field(factory=dict)

    async def collect(self) -> dict[str, Any]:
        self.answers["features"] = [*FEATURES, *(["rollouts"] if self.rollouts else [])]
        await self.keep("projects")
        await self.keep(self.of_project("experiments"))
        shown = await self.keep(self.of_experiment())
        await self.keep(self.of_experiment("events"), limit=10_000)
        for phase in shown["series"]:
            await self.keep(self.of_experiment("curves"), named={"phase": phase}, points=POINTS)
        for run in shown["runs"]:
            if run["folder"] is not None:
                await self.run(run["run_id"])
        await self.compared(shown)
        return self.answers

    async def run(self, name: str) -> None:
        """A run with the first of its rollouts."""
        path = self.of_experiment("runs", name)
        found = await self.keep(path, optional=True)
        for phase in PHASES if found and self.rollouts else ():
            if not found["rollouts"].get(phase):
                continue
            listed = await self.keep(
                f"{path}/rollouts", named={"phase": phase}, limit=min(self.rollouts, MOST_LISTED)
            )
            if listed["total"] > len(listed["rollouts"]):
                self.tell(f"{name}: {len(listed['rollouts'])} of {listed['total']} rollouts in {phase}")
                listed["next"] = None
            for row in listed["rollouts"]:
                one = await self.keep(f"{path}/rollouts/{phase}/{row['place']}")
                places = {each["place"] for each in listed["rollouts"]}
                one["next"] = one["next"] if one["next"] in places else None

    async def compared(self, shown: Mapping[str, Any]) -> None:
        """The baseline against each arm that it was compared with, and both transcripts of the tasks that changed."""
        baseline = shown["experiment"]["baseline"]
        for row in shown["experiment"]["comparisons"]:
            sides = {"left": f"{self.experiment}/{baseline}", "right": f"{self.experiment}/{row['arm']}"}
            found = await self.keep(self.of_project("comparison"), named=sides, optional=True)
            if found is None:
                continue
            changed = [task for task in found["tasks"] if task["change"] != "same"]
            if len(changed) > self.rollouts:
                self.tell(f"{row['arm']}: transcripts of {self.rollouts} of {len(changed)} changed tasks")
            for task in changed[: self.rollouts]:
                asked = {**sides, "benchmark": found["benchmark"], "task": task["task"]}
                await self.keep(self.of_project("comparison", "task"), named=asked)

    def of_project(self, *parts: str) -> str:
        return "/".join(("projects", *(address_part(part) for part in (self.project, *parts))))

    def of_experiment(self, *parts: str) -> str:
        return self.of_project("experiments", self.experiment, *parts)

    async def keep(
        self, path: str, *, named: Mapping[str, str] | None = None, optional: bool = False, **more: int
    ) -> Any:
        """An answer, kept by its path and what it is `named` by; None where an optional one is refused."""
        query = {**(named or {}), **{key: str(value) for key, value in more.items()}}
        url = f"{self.address}{PREFIX}/{path}"
        async with self.session.get(url, params=query) as response:
            answer = await response.json()
            if response.status != 200:
                if optional and response.status in {400, 404}:
                    return None
                raise StoreError(f"{self.experiment}: {answer['error']['message']}")
        self.answers[path + (f"?{query_text(named)}" if named else "")] = answer
        return answer


def address_part(text: str) -> str:
    """A part of a path, as `encodeURIComponent` writes it."""
    return quote(text, safe="!'()*")


def query_text(values: Mapping[str, str]) -> str:
    """A query, as `URLSearchParams` writes it."""
    return urlencode(values, safe="*").replace("~", "%7E")
