"""A team's server in a thread, its keys, and clients of its datasets and benchmarks."""

from pathlib import Path

from clients import running

from evsys_dashboard.data.client import DataClient, checked_file
from evsys_dashboard.data.shapes import Uploaded
from evsys_dashboard.remote import Remote
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.team import team_dashboard

TASKS = [
    {
        "task_id": f"t{number:02d}",
        "instruction": f"Which town lies {number} miles from the old mill on the river bend?",
        "verifier": {"name": "exact_match", "expected": "a"},
    }
    for number in range(12)
]


class Team:
    """A server that runs until `stop`; it may be started again, at another address."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self._running = None
        self.address = ""

    def start(self) -> None:
        self._running = running(lambda: team_dashboard(self.url, self.directory))
        self.ask = self._running.__enter__()
        self.address = self.ask.address

    def stop(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None

    def key(self, *scopes: str, project: str | None = "lab") -> str:
        database = Database(self.url)
        try:
            return Keys(database).create(scopes, project=project)[1]
        finally:
            database.close()

    def client(self, key: str, project: str | None = None) -> DataClient:
        return DataClient(Remote(self.address, key, project), wait=lambda seconds: None)

    def upload(self, key: str, kind: str, name: str, rows: list, **options) -> Uploaded:
        client = self.client(key)
        try:
            with checked_file(rows, name) as file:
                return client.upload(file, kind, name, **options)
        finally:
            client.close()
