"""Tests of the dashboard: databases, records and servers are real, but nobody waits for the disk."""

import itertools
import os
import sys
from pathlib import Path

import pytest
import sqlalchemy

sys.path.insert(0, str(Path(__file__).parent / "support"))

from lab_records import Lab
from postgres_server import postgres_programs, running_postgres
from team_data import Team

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.store.database import Database, sqlite_url
from evsys_dashboard.store.records import HeldRecords
from evsys_dashboard.store.summaries import Summaries


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture(scope="session")
def new_store(tmp_path_factory):
    """Gives the URL of a database that holds nothing yet.

    It is a SQLite file, or, in `nox -s postgres`, a schema of a PostgreSQL server.
    """
    if not os.environ.get("EVSYS_POSTGRES"):
        yield lambda: sqlite_url(tmp_path_factory.mktemp("store") / "store.sqlite")
        return
    if postgres_programs() is None:
        pytest.skip(
            "there is no PostgreSQL: install postgresql (Debian), postgresql-server (Fedora) or postgresql (Homebrew)"
        )
    with running_postgres() as url:
        engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        numbers = itertools.count()

        def make() -> str:
            name = f"test{next(numbers)}"
            with engine.begin() as connection:
                connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
            return f"{url}&options=-csearch_path%3D{name}"

        yield make
        engine.dispose()


@pytest.fixture
def database(new_store):
    opened = Database(new_store())
    yield opened
    opened.close()


@pytest.fixture
def ingest(database) -> Ingest:
    return Ingest(database)


@pytest.fixture
def records(database, tmp_path) -> HeldRecords:
    return HeldRecords(database, tmp_path / "held")


@pytest.fixture
def summaries(database, records) -> Summaries:
    return Summaries(database, records, local=False)


@pytest.fixture
def team(new_store, tmp_path):
    """A team's server that runs."""
    made = Team(new_store(), tmp_path / "team")
    made.start()
    yield made
    made.stop()
