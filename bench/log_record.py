"""What it costs training to log a record of five values, as JSON on standard output: microseconds each.

    python bench/log_record.py [--records 5000] [--rounds 7] [--peers PYTHON] [--check]

`record` is the line in the run's own record, `csv_metrics` that callback's row, `logger` what any callback of evsys-loggers does on
the training thread: its hook, with the thread that takes records at work beside it. CPU is that of the calling thread, the least mean over the
rounds. With `--peers` trackio, wandb (offline), mlflow and tensorboard log the same values themselves, from an environment that
has them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

from support.calls import measure

from evsys_loggers.logger import RunLogger
from evsys_record.run_record import RunRecord
from evsys_std.csv_metrics import CsvMetrics

BUDGET = 10.0
"""Microseconds of CPU on the training thread."""

VALUES = {
    "loss": 0.31234567,
    "learning_rate": 1e-4,
    "grad_norm": 1.2345678,
    "tokens": 12345.0,
    "seconds": 0.0123,
}


class Nowhere(RunLogger):
    """A logger that writes nothing."""

    name = "nowhere"

    def open(self, run):
        return self

    def write(self, records):
        """Leave them."""

    def close(self, status, facts):
        """Nothing is open."""


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=5000, help="records a round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (the least counts)")
    parser.add_argument("--peers", help="the Python of an environment that has the peers")
    parser.add_argument("--check", action="store_true", help="end with 1 if the budget is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = measure_all(Path(folder), options.records, options.rounds)
        peers = None if options.peers is None else beside(options.peers, Path(folder), options.records)
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "unit": "microseconds a record",
        "budget": BUDGET,
        "results": results,
        "peers": peers,
    }
    print(json.dumps(document, indent=2))
    over = [name for name, found in results.items() if found["cpu_min"] > BUDGET]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


def measure_all(folder: Path, records: int, rounds: int) -> dict[str, dict[str, float]]:
    """Each way to log by itself."""
    run = RunRecord(folder / "trial" / "runs" / "bench-s0")
    run.create("bench-s0")
    run.start_attempt()
    ctx = SimpleNamespace(
        run_id="bench-s0",
        arm="bench",
        repeat=0,
        attempt=1,
        run_dir=run.directory,
        config={},
        checkpoints=SimpleNamespace(restored=None),
    )
    table, logger = CsvMetrics(), Nowhere()
    calls: dict[str, Callable[[int], object]] = {
        "record": lambda step: run.metrics(step, VALUES),
        "csv_metrics": lambda step: table.evsys_step_finished(ctx, step, VALUES),
        "logger": lambda step: logger.evsys_step_finished(ctx, step, VALUES),
    }
    results = {name: measure(call, records, rounds, clock=time.thread_time) for name, call in calls.items()}
    run.close()
    return results


def beside(python: str, folder: Path, records: int) -> dict:
    """The peers, in a process of their own."""
    script = Path(__file__).parent / "peers" / "loggers.py"
    own = folder / "peers"
    own.mkdir()
    done = subprocess.run(
        [python, script, own, str(records)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    # trackio prints something when the process ends
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


if __name__ == "__main__":
    main()
