"""The dashboard of one project, on this machine: its database follows the records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evsys_dashboard.api.app import application
from evsys_dashboard.api.service import Service
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.push.follow import Follower, LocalTarget
from evsys_dashboard.store.database import Database, clean, sqlite_url
from evsys_dashboard.store.records import LocalRecords
from evsys_dashboard.store.summaries import Summaries
from evsys_record import make_directory
from evsys_record.files import shared_file
from evsys_runtime.logging import configure, run_logger
from evsys_runtime.serving.server import listening

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["local_dashboard"]

HOST = "127.0.0.1"


@asynccontextmanager
async def local_dashboard(experiments: Path, *, port: int = 0, log: Log | None = None) -> AsyncIterator[str]:
    """Serve a project's dashboard while inside; gives its address.

    Args:
        experiments: the folder of all experiments; it need not exist.
        port: port to listen on; 0 takes a free one.
        log: gets failures; by default they are shown on standard error.

    Raises:
        ConfigError: the port is taken.
        StoreError: the database can't be written.
    """
    log = log or run_logger(None, configure(console_level="warning"))
    own = experiments.parent.name == ".evsys"
    project = clean(experiments.parent.parent.name if own else experiments.name) or "project"
    folder = make_directory(shared_file(experiments, "cache"))
    database = await asyncio.to_thread(Database, sqlite_url(folder / "dashboard.sqlite"))
    records = LocalRecords(experiments)
    ingest = Ingest(database, keep_bytes=False)
    ingest.add_project(project)
    summaries = Summaries(database, records, local=True, log=log)
    service = Service(
        database=database, records=records, ingest=ingest, summaries=summaries, local=project, log=log
    )
    follower = Follower(
        experiments, LocalTarget(ingest, project), summaries, changed=service.changes.tell, log=log
    )
    follower.start()
    try:
        async with listening(application(service), HOST, port) as address:
            yield address
    finally:
        await asyncio.to_thread(follower.close)
        database.close()
