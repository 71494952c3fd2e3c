"""The tools of the endpoints: the database, the records, and a bell for those who wait for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.limits import Rates
from evsys_dashboard.data.catalogue import DataStore
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.listing import facets
from evsys_dashboard.store.records import Records
from evsys_dashboard.store.summaries import Summaries
from evsys_dashboard.store.tables import experiment, project, run
from evsys_runtime.serving.keys import WrongKeys

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = [
    "Changes",
    "Service",
    "Shared",
    "experiment_row",
    "project_version",
    "read_projects",
    "run_row",
    "shown_version",
]


class Changes:
    """Wakes those who wait for changes. `tell` may be called from any thread."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop = asyncio.get_running_loop()

    def tell(self) -> None:
        """Something changed."""
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; False if none came in time."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return True


class Shared:
    """Answers one question once for all who ask it at the same time."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def result[T](self, question: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question, which is asked now unless it is being asked already."""
        task = self._asked.get(question)
        if task is None:
            task = self._asked[question] = asyncio.create_task(ask())
            task.add_done_callback(lambda _: self._asked.pop(question))
        answer: T = await asyncio.shield(task)  # who leaves doesn't end it for the others
        return answer


class Service:
    """Everything that an endpoint needs. Make it in the event loop that serves.

    Args:
        database: what is asked.
        records: the records as folders.
        ingest: the way in.
        summaries: brought up to date after what comes in.
        local: the one project shown, without keys; None for a team's server.
        keys: of a team's server; None in a project.
        log: gets failures.
    """

    def __init__(
        self,
        *,
        database: Database,
        records: Records,
        ingest: Ingest,
        summaries: Summaries,
        local: str | None,
        keys: Keys | None = None,
        log: Log | None = None,
    ) -> None:
        self.database = database
        self.records = records
        self.ingest = ingest
        self.summaries = summaries
        self.local = local
        self.keys = keys
        self.wrong_keys = WrongKeys(log=log)
        self.rates = Rates()
        self.data = DataStore(database)
        self.checking = asyncio.Lock()
        self._facets: dict[str, tuple[int, dict[str, tuple[str, ...]]]] = {}
        self.log = log
        self.changes = Changes()
        self.shared = Shared()
        self.closing = asyncio.Event()

    async def read[T](self, question: Callable[[sa.Connection], T]) -> T:
        """Call a function with a connection, in a thread; its result."""

        def ask() -> T:
            with self.database.reading() as connection:
                return question(connection)

        return await asyncio.to_thread(ask)

    def facets(self, connection: sa.Connection, name: str) -> dict[str, tuple[str, ...]]:
        """The values that experiments of a project have; looked up again only after one of them changed."""
        query = (
            sa.select(sa.func.sum(experiment.c.summarised))
            .join(project, project.c.id == experiment.c.project_id)
            .where(project.c.name == name)
        )
        state = int(connection.execute(query).scalar() or 0)
        known = self._facets.get(name)
        if known is None or known[0] != state:
            known = self._facets[name] = (state, facets(connection, name))
        return known[1]


def shown_version() -> sa.ColumnElement[int]:
    """The newest version up to which lists show everything, in a query of projects: summaries are read after a batch is taken in."""
    pending = (
        sa.select(sa.func.min(experiment.c.version))
        .where(experiment.c.project_id == project.c.id, experiment.c.summarised < experiment.c.version)
        .scalar_subquery()
    )
    return sa.func.coalesce(pending - 1, project.c.version)


def project_version(connection: sa.Connection, name: str) -> int:
    """The version of a project up to which lists show everything.

    Raises:
        RefusedError: there is none of this name.
    """
    found: int | None = connection.execute(sa.select(shown_version()).where(project.c.name == name)).scalar()
    if found is None:
        raise RefusedError(404, f"no project is called {name!r}")
    return found


def read_projects(connection: sa.Connection) -> list[str]:
    """The names of all projects."""
    return list(connection.execute(sa.select(project.c.name).order_by(project.c.name)).scalars())


def experiment_row(connection: sa.Connection, project_name: str, name: str) -> Any:
    """The row of an experiment.

    Raises:
        RefusedError: there is none.
    """
    query = (
        sa.select(experiment)
        .join(project, project.c.id == experiment.c.project_id)
        .where(project.c.name == project_name, experiment.c.name == name, experiment.c.document.is_not(None))
    )
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        raise RefusedError(404, f"project {project_name!r} has no experiment {name!r}")
    return found


def run_row(connection: sa.Connection, experiment_id: int, name: str) -> Any:
    """The row of a run of an experiment.

    Raises:
        RefusedError: there is none.
    """
    query = sa.select(run).where(
        run.c.experiment_id == experiment_id, run.c.name == name, run.c.document.is_not(None)
    )
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        raise RefusedError(404, f"the experiment has no run {name!r}")
    return found
