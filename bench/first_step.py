"""How long `sft` takes to its first step on many rows, and how its memory grows, as JSON on standard output.

    python bench/first_step.py [--rows 1000000] [--steps 200] [--check]

Rows are read from a file, as a run reads them, before the clock starts: `reading` says how long that takes. `first_step` is the CPU of
setting the algorithm up, of building the first batch and of training it on the mock backend; `growth` the megabytes by which
resident memory grows in the second half of the steps. `few` is the same with a hundredth of the rows.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import attrs
from support.bare_run import MODEL, bare_run

from evsys_algo_sft import SFT
from evsys_backend_mock import MockBackend
from evsys_record.run_record import RunRecord
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.readers import read_rows

BUDGET_SECONDS = 2.0
BUDGET_GROWTH_MB = 16.0
"""Of which most is rows that are kept rendered, up to their bound."""


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    options = parser.parse_args()
    results = {}
    for name, rows in (("few", options.rows // 100), ("many", options.rows)):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = asyncio.run(measured(Path(folder), rows, options.steps))
    document = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "budgets": {"first_step": BUDGET_SECONDS, "growth": BUDGET_GROWTH_MB},
        "results": results,
    }
    print(json.dumps(document, indent=2))
    over = results["many"]["first_step"] > BUDGET_SECONDS or results["many"]["growth"] > BUDGET_GROWTH_MB
    if options.check and over:
        sys.exit("over budget")


async def measured(folder: Path, rows: int, steps: int) -> dict[str, float]:
    """One training on so many rows."""
    path = folder / "rows.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(line(number) for number in range(rows))
    cpu = time.process_time()
    data = MaterializedDataset.from_rows(read_rows(path), "chat", spool_dir=folder)
    reading = time.process_time() - cpu
    before = resident()
    record = RunRecord(folder / "run")
    record.create("run")
    ctx = bare_run(record, await MockBackend().prepare(MODEL, folder, 0), rows)
    at: dict[int, tuple[float, float]] = {}
    ctx = attrs.evolve(ctx, data=data, hooks=SimpleNamespace(emit=noting(at)))
    algorithm = SFT(learning_rate=1e-4, batch_size=16, steps=steps, save_every=0, log_every=steps)
    cpu = time.process_time()
    await algorithm.train(ctx)
    record.close()
    data.close()
    return {
        "rows": rows,
        "reading": round(reading, 2),
        "first_step": round(at[1][0] - cpu, 2),
        "memory_of_rows": round(before, 1),
        "growth": round(at[steps][1] - at[steps // 2][1], 1),
    }


def noting(at: dict[int, tuple[float, float]]):
    """Listeners that note the CPU and the memory at each step."""

    async def emit(name: str, **fields) -> None:
        if name == "evsys_step_finished":
            at[fields["step"]] = time.process_time(), resident()

    return emit


def line(number: int) -> str:
    """A question and its answer of about 60 tokens each."""
    text = f"Message {number} says something about the weather in town {number % 977}. "
    turns = [{"role": role, "content": text} for role in ("user", "assistant")]
    return json.dumps({"messages": turns}) + "\n"


def resident() -> float:
    """Megabytes of resident memory."""
    return (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / 1e6
    )


if __name__ == "__main__":
    main()
