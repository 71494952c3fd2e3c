"""The control channel: what status calls cost a training, how soon a pause holds, how soon a follower is up to date.

Prints one JSON document. A run of the local backend is asked for its status from another process a thousand times a second;
the CPU of the answering thread is compared with that of the whole process, as the kernel counts both (Linux).
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

from evsys_record.control import Control, read_address, send_request
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.reader import Experiment as Recorded
from evsys_runtime.experiment import Experiment

BUDGETS = {"status_cpu_share": 0.01, "steps_until_held": 1, "follow_milliseconds": 50.0}

CALLS_PER_SECOND = 1000
LINES = 1_000_000
STEPS = 100_000


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of status calls")
    parser.add_argument("--lines", type=int, default=LINES, help="of the record that is followed")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(ask(Path(options.client[0]), int(options.client[1]), options.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        results = {**train(Path(folder), options.seconds), **follow(Path(folder), options.lines)}
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "cpus": os.cpu_count(),
        "budgets": BUDGETS,
        "results": results,
    }
    print(json.dumps(document, indent=2))
    over = [name for name, budget in BUDGETS.items() if results[name] > budget]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


def train(folder: Path, seconds: float) -> dict[str, float]:
    """Train until the client has measured."""
    rows = [{"prompt": f"turn {n}", "answer": f"{n}"} for n in range(600)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = {
        "version": 1,
        "name": "control",
        "run": {
            "data": {
                "path": "train.jsonl",
                "transforms": [
                    {
                        "kind": "jsonl_to_chat",
                        "params": {"user_column": "prompt", "assistant_column": "answer"},
                    }
                ],
            },
            "model": {"name": "evsys/tiny"},
            "algorithm": {
                "kind": "sft",
                "params": {"learning_rate": 1e-3, "steps": STEPS, "batch_size": 32, "lora_rank": 8},
            },
            "backend": {"kind": "local"},
        },
    }
    measured: list[subprocess.Popen[str]] = []

    def begin(record: ExperimentRecord, _address: object) -> None:
        thread = next(one for one in threading.enumerate() if one.name == "evsys-control")
        measured.append(
            subprocess.Popen(
                [
                    *(sys.executable, __file__, "--client", str(record.directory), str(thread.native_id)),
                    *("--seconds", str(seconds)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    experiment = Experiment(config, project_root=folder, quiet=True)
    experiment.on_launch = begin
    experiment.run()
    return dict(json.loads(measured[0].communicate()[0]))


def ask(directory: Path, thread: int, seconds: float) -> dict[str, float]:
    """In another process: ask for the status, then pause, and stop the experiment."""
    while status(directory)["step"] < 3:
        time.sleep(0.05)
    cpu = partial(_cpu, read_address(directory).pid, thread)
    results = {
        **asyncio.run(ask_control(directory, seconds, cpu)),
        **ask_socket(directory, seconds, cpu),
    }
    started = time.perf_counter()
    send_request(directory, {"request": "pause"})
    asked_at = status(directory)["step"]  # made new by the request
    while status(directory)["status"] != "paused":
        time.sleep(0.001)
    results["held_after_seconds"] = time.perf_counter() - started
    results["steps_until_held"] = status(directory)["step"] - asked_at
    send_request(directory, {"request": "stop"})
    return results


async def ask_control(
    directory: Path, seconds: float, cpu: Callable[[], tuple[float, float]]
) -> dict[str, float]:
    """By the client of the library, as a dashboard does it."""
    async with await Control.open(directory) as control:
        before, began, calls = cpu(), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            await control.request({"request": "status"})
            calls += 1
            await asyncio.sleep(max(0.0, began + calls / CALLS_PER_SECOND - time.monotonic()))
        of_thread, of_process = (now - then for now, then in zip(cpu(), before, strict=True))
        return {
            "calls_per_second": calls / (time.monotonic() - began),
            "status_cpu_share": of_thread / of_process,
        }


def ask_socket(directory: Path, seconds: float, cpu: Callable[[], tuple[float, float]]) -> dict[str, float]:
    """By a bare socket, each call answered by the process."""
    latencies, calls = [], 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(read_address(directory).socket))
        before, began = cpu(), time.monotonic()
        while time.monotonic() < began + seconds:
            started = time.perf_counter()
            connection.sendall(b'{"request":"status"}\n')
            while not connection.recv(1 << 16).endswith(b"\n"):
                pass
            latencies.append(time.perf_counter() - started)
            calls += 1
            time.sleep(max(0.0, began + calls / CALLS_PER_SECOND - time.monotonic()))
        took = time.monotonic() - began
        of_thread, of_process = (now - then for now, then in zip(cpu(), before, strict=True))
    latencies.sort()
    return {
        "bare_calls_per_second": calls / took,
        "bare_status_cpu_share": of_thread / of_process,
        "bare_status_cpu_microseconds": of_thread / calls * 1e6,
        "latency_median_milliseconds": latencies[len(latencies) // 2] * 1e3,
        "latency_p99_milliseconds": latencies[int(len(latencies) * 0.99)] * 1e3,
        "process_cpu_cores": of_process / took,
    }


def status(directory: Path) -> dict[str, float]:
    """The status of the only run."""
    return dict(send_request(directory, {"request": "status"})["runs"][0])


def _cpu(pid: int, thread: int) -> tuple[float, float]:
    """Seconds of CPU of one thread of a process, and of all of it."""
    found = {
        int(task.name): int((task / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return found[thread], sum(found.values())


def follow(folder: Path, lines: int) -> dict[str, float]:
    """Follow a long record from a cursor ten lines before its end."""
    record = ExperimentRecord.create(folder / "long", "long", b"version: 1\n", facts={"arms": []})
    record.note(status="completed")
    training = record.directory / "runs" / "a-s0" / "training"
    training.mkdir(parents=True)
    line = (
        json.dumps({"attempt": 1, "step": 1, "time": "2026-01-01T00:00:00.000Z", "values": {"loss": 1.0}})
        + "\n"
    )
    path = training / "metrics.jsonl"
    path.write_text(line * lines, encoding="utf-8")
    experiment = Recorded(record.directory)
    offset = path.stat().st_size - 10 * len(line)
    cursor = json.dumps(
        {"experiment": experiment.id, "offsets": {"runs/a-s0/training/metrics.jsonl": offset}}
    )
    times = []
    for _ in range(5):
        started = time.perf_counter()
        found = sum(1 for _ in experiment.follow(cursor))
        times.append(time.perf_counter() - started)
        assert found == 10, found
    return {"follow_milliseconds": min(times) * 1e3}


if __name__ == "__main__":
    main()
