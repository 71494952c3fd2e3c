"""Either side is killed in the middle of a push, again and again; in the end each line is there once."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa
from lab_records import Lab

from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.tables import rollout, series

KILLS = 50
LINES = 4000

CLIENT = """
import evsys_dashboard.push.pusher as pushing
from evsys_cli.main import main

pushing.BATCH_BYTES = 5_000
push = pushing.Pusher.push

def announced(self):
    print("batch", flush=True)
    return push(self)

pushing.Pusher.push = announced
raise SystemExit(main())
"""
"""`evsys sync` in small batches, each of which it announces."""

pytestmark = pytest.mark.slow


class Side:
    """A process that is started again after each kill."""

    def __init__(self, arguments, folder, **environment):
        self.command = [sys.executable, "-m", "evsys_cli.main", *arguments]
        self.folder = folder
        self.environment = {**os.environ, **environment}
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self.process

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.timeout(1800)
def test_fifty_kills_of_either_side_lose_and_double_nothing(tmp_path, new_store):
    lab, url, rng = Lab(tmp_path / "lab"), new_store(), random.Random(0)
    record = lab.begin("one")
    run = lab.run(record, steps=LINES, rollouts=LINES // 4)
    run.close()
    lab.end(record)
    store = Database(url)
    _, key = Keys(store).create(["read", "write"], project="lab")
    server = Side(
        ["dashboard", "serve", "--listen", "127.0.0.1:0", "--json", "--directory", str(tmp_path / "team")],
        tmp_path,
        EVSYS_DATABASE=url,
    )
    address = json.loads(server.start().stdout.readline())["url"]
    port = address.rpartition(":")[2]
    server.command[server.command.index("127.0.0.1:0")] = f"127.0.0.1:{port}"

    def client():
        side = Side([], tmp_path, EVSYS_API_URL=address, EVSYS_API_KEY=key)
        side.command = [sys.executable, "-c", CLIENT, "sync", str(record.directory)]
        side.start()
        return side

    met = 0
    for number in range(KILLS):
        pushing = client()
        batches = rng.randrange(1, 5)
        met += [pushing.process.stdout.readline() for _ in range(batches)] == ["batch\n"] * batches
        if number % 2:
            pushing.kill()
        else:
            server.kill()
            pushing.process.communicate()
            server.start().stdout.readline()
    assert met == KILLS  # each in the middle of a push
    last = client()
    last.process.communicate()
    assert last.process.returncode == 0
    with store.reading() as connection:
        counts = {
            row.name: row.number
            for row in connection.execute(sa.select(series.c.name, series.c.count.label("number")))
        }
        rollouts = connection.execute(sa.select(sa.func.count()).select_from(rollout)).scalar()
    store.close()
    server.kill()
    assert counts == {"loss": LINES, "grad_norm": LINES}
    assert rollouts == LINES // 4
