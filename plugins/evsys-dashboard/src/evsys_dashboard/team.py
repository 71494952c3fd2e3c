"""A team's server: its database takes in records sent to it, and shows them to those with a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evsys_dashboard.api.app import application
from evsys_dashboard.api.service import Service
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.records import HeldRecords
from evsys_dashboard.store.summaries import Summaries
from evsys_record import make_directory
from evsys_runtime.logging import configure, run_logger
from evsys_runtime.serving.server import listening

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["team_dashboard"]


@asynccontextmanager
async def team_dashboard(
    url: str, directory: Path, *, host: str = "127.0.0.1", port: int = 0, log: Log | None = None
) -> AsyncIterator[str]:
    """Serve a team's dashboard while inside; gives its address.

    Args:
        url: of the database.
        directory: for the files of records, which are made again whenever they are gone.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        log: gets wrong keys and failures; by default they are shown on standard error.

    Raises:
        ConfigError: the port is taken, or there is no such database.
        StoreError: the database can't be used.
    """
    log = log or run_logger(None, configure(console_level="warning"))
    database = await asyncio.to_thread(Database, url)
    records = HeldRecords(database, make_directory(directory / "records"))
    summaries = Summaries(database, records, local=False, log=log)
    service = Service(
        database=database,
        records=records,
        ingest=Ingest(database),
        summaries=summaries,
        local=None,
        keys=Keys(database),
        log=log,
    )
    await asyncio.to_thread(summaries.refresh)  # of batches whose server ended before it had read them
    try:
        async with listening(application(service), host, port) as address:
            yield address
    finally:
        database.close()
