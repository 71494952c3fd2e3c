"""The dashboard: points taken in a second, lists and curves, live readers, first paint; beside trackio and MLflow.

Prints one JSON document. The server is `evsys dashboard serve` in a process of its own, on SQLite and, where it is installed, on a PostgreSQL
of the script's own that waits for its disk. CPU is that of the server's process; PostgreSQL's own comes on top. Requests are sent over HTTP by
as many threads as there are clients; `p95` is of the wall, so compare it on a quiet machine only.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import sqlalchemy as sa
from support.postgres import running_postgres

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.ingest.pieces import Piece, pack
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.sender import Sender
from evsys_dashboard.push.server import ServerTarget
from evsys_dashboard.store.database import Database, sqlite_url
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.tables import experiment
from evsys_record.experiment_record import ExperimentRecord

BARS = {
    "points_per_second_small": 20_000.0,
    "points_per_second_large": 20_000.0,
    "list_p95_milliseconds": 150.0,
    "long_run_p95_milliseconds": 300.0,
    "wide_p95_milliseconds": 1000.0,
    "live_readers": 100,
    "training_microseconds": 10.0,
    "first_paint_milliseconds": 1000.0,
}
LEAST = {"points_per_second_small", "points_per_second_large", "live_readers"}

CLIENTS = 10
VALUES = 10
LINES_SMALL, BATCHES_SMALL = 10, 60
LINES_LARGE, BATCHES_LARGE = 4000, 4


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--experiments", type=int, default=10_000, help="of the long list")
    parser.add_argument(
        "--runs", type=int, default=1500, help="of the wide experiment, with 150 metrics each"
    )
    parser.add_argument("--requests", type=int, default=30, help="of each kind")
    parser.add_argument("--only", choices=["sqlite", "postgresql"], help="one database")
    parser.add_argument("--peers", help="the Python of an environment that has trackio and mlflow")
    parser.add_argument("--check", action="store_true", help="end with 1 if a bar is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = {}
        for name in ("sqlite", "postgresql"):
            if options.only in {None, name}:
                place = Path(folder, name)
                place.mkdir()
                with _new_database(name, place) as url:
                    results[name] = (
                        {"problem": "there is no PostgreSQL, or no psycopg"}
                        if url is None
                        else measure(url, place, options)
                    )
        peers = None if options.peers is None else beside(options.peers, Path(folder))
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-dashboard"),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "bars": BARS,
        "results": results,
        "peers": peers,
    }
    print(json.dumps(document, indent=2))
    missed = [
        f"{database}: {name}"
        for database, found in results.items()
        for name, bar in BARS.items()
        if isinstance(found.get(name), int | float)
        and (found[name] < bar if name in LEAST else found[name] > bar)
    ]
    if options.check and missed:
        sys.exit(f"bars missed: {', '.join(missed)}")


@contextmanager
def _new_database(name: str, place: Path) -> Iterator[str | None]:
    if name == "sqlite":
        yield sqlite_url(place / "store.sqlite")
    elif importlib.util.find_spec("psycopg") is None:
        yield None
    else:
        with running_postgres() as url:
            yield url


def measure(url: str, place: Path, options: argparse.Namespace) -> dict[str, object]:
    """Everything on one database."""
    store = Database(url)
    _, admin = Keys(store).create(["read", "write"], project=None)
    keys = [Keys(store).create(["write", "read"], project="lab")[1] for _ in range(CLIENTS)]
    ingest = Ingest(store)
    _long(ingest, options.points)
    _wide(ingest, place, options.runs)
    with _serving(url, place) as server:  # which reads the summaries of these
        _many(store, options.experiments)
        results: dict[str, object] = {}
        for size, lines, batches in (
            ("small", LINES_SMALL, BATCHES_SMALL),
            ("large", LINES_LARGE, BATCHES_LARGE),
        ):
            found = push(server, keys, size, lines, batches)
            results |= {f"{name}_{size}": value for name, value in found.items()}
        questions = {
            "list": "/projects/many/experiments",
            "long_run": "/projects/long/experiments/long/curves?name=loss",
            "long_run_page": "/projects/long/experiments/long/runs/a-s0",
            "wide": "/projects/wide/experiments/{wide}",
        }
        for name, path in questions.items():
            results |= ask(server, admin, name, path, options.requests)
        results |= asyncio.run(follow(server, keys))
        results |= train(server, keys[0], place)
        results |= paint(server, admin)
    store.close()
    return results


class Server:
    """`evsys dashboard serve`, by its address and process."""

    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self.pid = pid

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> HTTPConnection:
        """A connection to it."""
        return HTTPConnection(urlsplit(self.address).netloc, timeout=120)


@contextmanager
def _serving(url: str, place: Path) -> Iterator[Server]:
    command = [
        *(sys.executable, "-m", "evsys_cli.main", "dashboard", "serve", "--listen", "127.0.0.1:0"),
        *("--directory", str(place / "team"), "--json"),
    ]
    environment = {**os.environ, "EVSYS_DATABASE": url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline()
            assert line, "the server didn't start"
            yield Server(json.loads(line)["url"], process.pid)
        finally:
            process.terminate()


def _lines(first: int, count: int, names: int) -> bytes:
    return b"".join(
        json.dumps(
            {
                "attempt": 1,
                "step": step,
                "time": "2026-01-01T00:00:00.000Z",
                "values": {f"metric_{name}" if name else "loss": step * 0.5 + name for name in range(names)},
            }
        ).encode()
        + b"\n"
        for step in range(first, first + count)
    )


def _long(ingest: Ingest, points: int) -> None:
    """One run with one long curve."""
    path, place = "runs/a-s0/training/metrics.jsonl", 0
    facts = {
        "experiment.json": {
            "name": "long",
            "status": "completed",
            "dry": False,
            "created": "2026-01-01",
            "finished": None,
        },
        "runs/a-s0/run.json": {"run_id": "a-s0", "attempts": [{"n": 1, "parent": None, "from_step": 0}]},
    }
    ingest.take(
        "long", "long", [Piece(file=name, data=json.dumps(tree).encode()) for name, tree in facts.items()]
    )
    for first in range(1, points + 1, 40_000):
        data = _lines(first, min(40_000, points + 1 - first), 1)
        ingest.take("long", "long", [Piece(file=path, place=place, data=data)])
        place += len(data)


def _wide(ingest: Ingest, place: Path, runs: int) -> None:
    """One experiment of many runs with 150 metrics each, as it is on record."""
    planned = [{"run_id": f"a{n}-s0", "arm": f"a{n}", "repeat": 0} for n in range(runs)]
    record = ExperimentRecord.create(place / "wide", "wide", b"version: 1\n", facts={"arms": planned})
    facts = {"attempts": [{"n": 1, "parent": None, "from_step": 0}]}
    for each in planned:
        folder = record.directory / "runs" / each["run_id"]
        (folder / "training").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({**each, **facts}), encoding="utf-8")
        (folder / "training" / "metrics.jsonl").write_bytes(_lines(1, 1, 150))

    class Target:
        def held(self, name):
            return ingest.held("wide", "wide")

        def take(self, name, pieces):
            return ingest.take("wide", "wide", pieces).held

    pusher = Pusher(record.directory, Target())
    while pusher.push():
        pass


def _many(store: Database, count: int) -> None:
    """Many experiments of a project, as summaries of records list them."""
    ingest = Ingest(store)
    ingest.take("many", "first", [Piece(file="hypothesis.md", data=b"It holds.")])
    with store.writing() as connection:
        first = connection.execute(sa.select(experiment).where(experiment.c.name == "first")).mappings().one()
        model = connection.execute(sa.select(experiment).where(experiment.c.name == "long")).mappings().one()
        common = {**model, "project_id": first["project_id"], "version": 1, "summarised": 1}
        common.pop("id")
        connection.execute(sa.delete(experiment).where(experiment.c.id == first["id"]))
        store.insert(
            connection,
            experiment,
            [
                {
                    **common,
                    "name": f"trial-{number}",
                    "title": f"trial {number}",
                    "moment": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}",
                    "words": f"trial {number} rate schedule baseline",
                }
                for number in range(count)
            ],
        )


def push(server: Server, keys: list[str], size: str, lines: int, batches: int) -> dict[str, float]:
    """Points that ten clients push in batches, each an experiment of its own."""

    def bodies() -> list[bytes]:
        found, place = [], 0
        for number in range(batches):
            data = _lines(1 + number * lines, lines, VALUES)
            found.append(pack([Piece(file="runs/a-s0/training/metrics.jsonl", place=place, data=data)]))
            place += len(data)
        return found

    prepared = bodies()

    def client(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            for body in prepared:
                path = f"/api/v1/projects/lab/experiments/{size}-{number}/batch"
                connection.request("POST", path, body, {"Authorization": f"Bearer {keys[number]}"})
                response = connection.getresponse()
                assert response.status == 200, response.read()
                response.read()

    cpu, start = server.cpu(), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    wall, cpu = time.perf_counter() - start, server.cpu() - cpu
    points = CLIENTS * batches * lines * VALUES
    return {"points_per_second": round(points / wall), "points_per_cpu_second": round(points / cpu)}


def ask(server: Server, key: str, name: str, path: str, requests: int) -> dict[str, float]:
    """Times of a question, asked again and again."""
    times = []
    headers = {"Authorization": f"Bearer {key}", "Accept-Encoding": "gzip"}
    with contextlib.closing(server.connect()) as connection:

        def get(path: str) -> bytes:
            connection.request("GET", f"/api/v1{path}", headers=headers)
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
            return body

        get(path.format(wide="wide"))
        cpu = server.cpu()
        for _ in range(requests):
            start = time.perf_counter()
            get(path.format(wide="wide"))
            times.append(time.perf_counter() - start)
        cpu = server.cpu() - cpu
    times.sort()
    return {
        f"{name}_p50_milliseconds": round(times[len(times) // 2] * 1e3, 1),
        f"{name}_p95_milliseconds": round(times[int(len(times) * 0.95)] * 1e3, 1),
        f"{name}_cpu_milliseconds": round(cpu / requests * 1e3, 1),
    }


async def follow(
    server: Server, keys: list[str], *, readers: int = 100, batches: int = 40
) -> dict[str, float]:
    """Readers that follow a project while batches come in: how many see the last one, and how soon."""
    base = f"{server.address}/api/v1/projects/lab"
    last: dict[str, float] = {}
    seen: list[dict[int, float]] = [{} for _ in range(readers)]
    listening = asyncio.Semaphore(0)

    async def read(number: int, session: aiohttp.ClientSession) -> None:
        async with session.get(f"{base}/stream", headers=_bearer(keys[number % CLIENTS])) as response:
            listening.release()
            async for line in response.content:
                if line.startswith(b"id: "):
                    seen[number][int(line[4:])] = time.perf_counter()
                    if int(line[4:]) >= last.get("version", 1 << 62):
                        return

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        tasks = [asyncio.create_task(read(number, session)) for number in range(readers)]
        for _ in range(readers):
            await listening.acquire()
        cpu, place, sent = server.cpu(), 0, {}
        for number in range(batches + 1):
            data = _lines(1 + number, 1, VALUES)
            body = pack([Piece(file="runs/a-s0/training/metrics.jsonl", place=place, data=data)])
            place += len(data)
            async with session.post(
                f"{base}/experiments/live/batch", data=body, headers=_bearer(keys[1])
            ) as response:
                answer = await response.json()
                assert response.status == 200, answer
            sent[answer["version"]] = time.perf_counter()
            if number == batches - 1:
                last["version"] = answer["version"] + 1
        _, pending = await asyncio.wait(tasks, timeout=60)
        for task in pending:
            task.cancel()
        cpu = server.cpu() - cpu
    end = last["version"]
    delays = sorted(times[end] - sent[end] for times in seen if end in times)
    return {
        "live_readers": len(delays),
        "live_delay_p95_milliseconds": round(delays[int(len(delays) * 0.95)] * 1e3, 1) if delays else -1,
        "live_cpu_milliseconds_a_batch": round(cpu / (batches + 1) * 1e3, 1),
    }


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def train(server: Server, key: str, place: Path, *, records: int = 5000) -> dict[str, float]:
    """CPU of a record of five values on the training thread, alone and while a thread of `evsys_logger` sends it."""

    def each(name: str, *, sent: bool) -> float:
        record = ExperimentRecord.create(place / "train", name, b"version: 1\n", facts={"arms": []})
        run = record.run("a-s0", facts={"arm": "a", "repeat": 0})
        run.start_attempt()
        sender = None
        if sent:
            target = ServerTarget(server.address, key, "lab")
            sender = Sender(Pusher(record.directory, target), seconds=0.2, at_end=target.close)
            sender.start()
        start = time.thread_time()
        for step in range(records):
            run.metrics(step, dict.fromkeys(("loss", "grad_norm", "tokens", "seconds", "rate"), step * 0.5))
        took = (time.thread_time() - start) / records * 1e6
        run.close()
        if sender is not None:
            assert sender.finish(120), sender.failure
            sender.close(30)
        return round(took, 2)

    alone = min(each(f"alone{n}", sent=False) for n in range(3))
    both = min(each(f"sent{n}", sent=True) for n in range(3))
    return {
        "record_microseconds_alone": alone,
        "record_microseconds_sent": both,
        "training_microseconds": round(max(0.0, both - alone), 2),
    }


def paint(server: Server, key: str) -> dict[str, object]:
    """The first paint of the list and of the long run, in Chromium."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None or chromium is None:
        return {"first_paint_problem": "there is no playwright or no Chromium"}
    from playwright.sync_api import sync_playwright

    script = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        page.wait_for_selector("main table, main .empty")
        results: dict[str, object] = {}
        for name, path, wanted in (
            ("", "many/experiments", "main table"),
            ("_long_run", "long/experiments/long/runs/a-s0", ".chart canvas"),
        ):
            paints, shown = [], []
            for _ in range(5):
                page.goto("about:blank")
                start = time.perf_counter()
                page.goto(f"{server.address}/#/{path}")
                page.wait_for_selector(wanted)
                shown.append(time.perf_counter() - start)
                paints.append(page.evaluate(script))
            results[f"first_paint{name}_milliseconds"] = round(sorted(paints)[2], 1)
            results[f"shown{name}_milliseconds"] = round(sorted(shown)[2] * 1e3, 1)
        browser.close()
    return results


def beside(python: str, folder: Path) -> object:
    """The peers, in a process of their own."""
    own = folder / "peers"
    own.mkdir()
    script = Path(__file__).parent / "peers" / "dashboards.py"
    done = subprocess.run([python, script, own], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


if __name__ == "__main__":
    main()
