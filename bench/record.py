"""What a record costs: microseconds each for metrics, rollouts, journal and log; prints one JSON document.

A figure is the least mean over a number of rounds: the least, because other work on the machine only ever adds.
Everything is written to real files in a temporary folder, one system call a record.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from support.calls import measure

from evsys.types import Message, Rollout, Score, Turn
from evsys_record.files import write_json
from evsys_record.run_record import RunRecord
from evsys_runtime.logging import configure, record_logger

# Microseconds of CPU that a record may take.
BUDGETS = {"metrics": 10.0, "log": 15.0, "rollout": 300.0}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=5000, help="records a round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (the least counts)")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results = measure_all(Path(folder), options.records, options.rounds)
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "unit": "microseconds a record",
        "budgets": BUDGETS,
        "results": results,
    }
    print(json.dumps(document, indent=2))
    over = [name for name, budget in BUDGETS.items() if results[name]["cpu_min"] > budget]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


def measure_all(folder: Path, records: int, rounds: int) -> dict[str, dict[str, float]]:
    """Each kind of record by itself, in a run's own record."""
    run = RunRecord(folder / "runs" / "bench-s0")
    run.create("bench-s0")
    run.start_attempt()
    log = record_logger(run, configure(console_level=None))
    values = {
        "loss": 0.31234567,
        "learning_rate": 1e-4,
        "grad_norm": 1.2345678,
        "tokens": 12345.0,
        "seconds": 0.0123,
    }
    short, long = example_rollout(turns=1, tokens=32), example_rollout(turns=4, tokens=500)
    rows = [f"row-{number}" for number in range(16)]
    calls: dict[str, tuple[Callable[[int], object], int]] = {
        "metrics": (lambda step: run.metrics(step, values), records),
        "rollout": (lambda step: run.rollout(step, short), records // 4),
        "rollout_of_4_turns_and_2000_tokens": (lambda step: run.rollout(step, long), max(records // 50, 1)),
        "journal": (lambda step: run.intent(step, "batch", rows), records),
        "log": (lambda step: log.info("step.finished", step=step, loss=0.3, tokens=12345), records),
        "whole_file": (
            lambda step: write_json(folder / "a.json", {"step": step, **values}),
            max(records // 100, 1),
        ),
    }
    results = {name: measure(call, count, rounds) for name, (call, count) in calls.items()}
    run.close()
    return results


def example_rollout(turns: int, tokens: int) -> Rollout:
    """Token ids with their logprobs, and some words, for each turn."""
    message = Message(role="assistant", content="Some words that a model may have said. " * turns)
    turn = Turn(
        message=message,
        prompt_tokens=list(range(tokens)),
        tokens=list(range(tokens)),
        logprobs=[-0.123456789] * tokens,
    )
    return Rollout(
        task_id="task", sample_index=0, turns=(turn,) * turns, output="words", score=Score(value=1.0)
    )


if __name__ == "__main__":
    main()
