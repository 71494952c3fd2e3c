"""Tests of the dashboard: databases, records and servers are real, but nobody waits for the disk."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from lab_records import Lab

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.store.database import Database, sqlite_url
from evsys_dashboard.store.records import HeldRecords
from evsys_dashboard.store.summaries import Summaries


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Syncing protects from power cuts, which no test makes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "store.sqlite"))
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
