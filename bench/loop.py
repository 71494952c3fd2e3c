"""What the training loop adds to a step: journal, metrics, checks, schedule, listeners; prints one JSON document.

The same batches are trained twice: by the loop with its record on disk, and by the bare calls of a training client.
`overhead` is measured on a client that answers at once, so that nothing of the model is in it; `mock` is a whole step
of the mock backend for comparison. CPU milliseconds, the least of several runs.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from support.bare_run import MODEL, bare_run

from evsys.types import Datum, ForwardResult, OptimResult, TrainingBatch
from evsys_backend_mock import MockBackend
from evsys_record.run_record import RunRecord
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.params import adam_params

BUDGET = 1.0  # CPU milliseconds of the loop in one step


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="steps of each run")
    parser.add_argument("--runs", type=int, default=5, help="runs (the least counts)")
    parser.add_argument("--check", action="store_true", help="end with 1 if the loop exceeds its budget")
    options = parser.parse_args()

    runs = [asyncio.run(measure(options.steps)) for _ in range(options.runs)]
    least = {name: round(min(run[name] for run in runs), 4) for name in runs[0]}
    document = {
        "python": platform.python_version(),
        "unit": "CPU milliseconds a step",
        "steps": options.steps,
        "rows_in_a_batch": 8,
        "tokens_in_a_batch": 8 * 40,
        "budget_overhead": BUDGET,
        "results": least,
    }
    print(json.dumps(document, indent=2))
    if options.check and least["overhead"] > BUDGET:
        sys.exit(f"over budget: the loop takes {least['overhead']} ms a step")


async def measure(steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        loop_alone = await looped(AnswersAtOnce(), steps, Path(folder, "at-once"))
        bare_alone = await bare(AnswersAtOnce(), steps)
        mock = await prepared(Path(folder))
        bare_mock = await bare(mock, steps)
        loop_mock = await looped(await prepared(Path(folder)), steps, Path(folder, "mock"))
    return {
        "overhead": loop_alone - bare_alone,
        "mock_step_in_the_loop": loop_mock,
        "mock_step_bare": bare_mock,
    }


class AnswersAtOnce:
    """A training client whose calls cost nothing."""

    capabilities = frozenset({"loss_fns"})

    async def forward_backward(self, data, loss_fn, loss_params=None):
        return ForwardResult(logprobs=[], loss=1.0, tokens=320)

    async def optim_step(self, params):
        return OptimResult(grad_norm=1.0)

    async def save_state(self, directory):
        return {}


class Fixed(BaseAlgorithm):
    """Batches that are there already."""

    async def build_batch(self, step_idx):
        return TrainingBatch(data=BATCH, row_ids=ROW_IDS)


def datum(seed: int) -> Datum:
    tokens = np.random.default_rng(seed).integers(0, 256, 41)
    return Datum(
        tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": np.full(40, 1 / 320)}
    )


BATCH = [datum(seed) for seed in range(8)]
ROW_IDS = tuple(f"row-{i}" for i in range(8))


async def prepared(folder: Path):
    return await MockBackend().prepare(MODEL, folder, 0)


async def bare(client, steps: int) -> float:
    params = Fixed(learning_rate=1e-4).config
    started = time.process_time()
    for _ in range(steps):
        forward = client.forward_backward(BATCH, "cross_entropy", {})
        step = client.optim_step(adam_params(params, 1e-4))
        await forward
        await step
    return (time.process_time() - started) / steps * 1e3


async def looped(client, steps: int, directory: Path) -> float:
    record = RunRecord(directory)
    record.create(directory.name)
    ctx = bare_run(record, client, 8)
    algorithm = Fixed(learning_rate=1e-4, batch_size=8, steps=steps, save_every=0)
    started = time.process_time()
    await algorithm.train(ctx)
    spent = time.process_time() - started
    record.close()
    return spent / steps * 1e3


if __name__ == "__main__":
    main()
