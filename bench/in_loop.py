"""Share of the scoring's time that training hides, with a verifier that takes its time; prints one JSON document.

    python bench/in_loop.py [--steps 100] [--every 10] [--tasks 32] [--step 0.02] [--verdict 0.02] [--runs 3] [--check]

The mock backend, whose steps wait for `--step` seconds more as those of a service do, is trained alone, its snapshots are scored
alone, and both are done together, as a run does it.
`hidden` is what is saved of the time that scoring takes alone; `hidden_of_what_can_be` leaves out the scoring of the last
weights, which no training is left to hide.
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

from evsys import Registry
from evsys.types import Datum, HarborTask, TrainingBatch, VerifierSpec
from evsys_backend_mock import MockBackend
from evsys_record.run_record import RunRecord
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.evaluation.benchmarks import bind_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.training.algorithm import BaseAlgorithm

TARGET = 0.8  # of what can be hidden


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="steps between two scorings")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--step", type=float, default=0.02, help="seconds that a step waits")
    parser.add_argument("--verdict", type=float, default=0.02, help="seconds that a verdict takes")
    parser.add_argument("--runs", type=int, default=3, help="runs (the shortest counts)")
    parser.add_argument(
        "--check", action="store_true", help=f"end with 1 below {TARGET} of what can be hidden"
    )
    options = parser.parse_args()
    if options.steps % options.every:
        parser.error("--steps must be a multiple of --every, so that every part scores the same")

    runs = [measured(options) for _ in range(options.runs)]
    training, scoring, both = (min(run[part] for run in runs) for part in ("training", "scoring", "both"))
    scorings = options.steps // options.every
    hidden = (training + scoring - both) / scoring
    share = hidden * scorings / (scorings - 1)
    document = {
        "python": platform.python_version(),
        "unit": "seconds",
        **{name: value for name, value in vars(options).items() if name != "check"},
        "results": {
            "training_alone": round(training, 3),
            "scoring_alone": round(scoring, 3),
            "both": round(both, 3),
            "hidden": round(hidden, 3),
            "hidden_of_what_can_be": round(share, 3),
        },
        "target_hidden_of_what_can_be": TARGET,
    }
    print(json.dumps(document, indent=2))
    if options.check and share < TARGET:
        sys.exit(f"training hides {share:.0%} of what it could")


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of training alone, of all scorings alone, and of both together."""
    with tempfile.TemporaryDirectory() as folder:
        parts = {"training": (True, False), "scoring": (False, True), "both": (True, True)}
        return {
            name: asyncio.run(run(options, Path(folder, name), train=train, score=score))
            for name, (train, score) in parts.items()
        }


class Fixed(BaseAlgorithm):
    """Batches that are there already."""

    async def build_batch(self, step_idx):
        return TrainingBatch(data=BATCH, row_ids=tuple(f"row-{i}" for i in range(len(BATCH))))


class Elsewhere:
    """A training client whose steps take their time without this machine."""

    def __init__(self, client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def __getattr__(self, name: str):
        return getattr(self._client, name)

    async def forward_backward(self, *arguments):
        await asyncio.sleep(self._seconds)
        return await self._client.forward_backward(*arguments)

    async def optim_step(self, params):
        return await self._client.optim_step(params)


def datum(seed: int) -> Datum:
    tokens = np.random.default_rng(seed).integers(97, 123, 33)
    inputs = {"target_tokens": tokens[1:], "weights": np.full(32, 1 / 128)}
    return Datum(tokens=tokens[:-1], loss_inputs=inputs)


BATCH = [datum(seed) for seed in range(4)]


def evaluator(options: argparse.Namespace, renderer, record: RunRecord) -> Evaluator:
    async def slow(_output, _expected, _params):
        await asyncio.sleep(options.verdict)
        return 1.0

    registry = Registry()
    registry.register("verifier", "slow", slow)
    tasks = [
        HarborTask(task_id=f"t{i}", instruction="well?", verifier=VerifierSpec(name="slow", expected=""))
        for i in range(options.tasks)
    ]
    entry = BenchmarkConfig(
        name="held_out", metrics=("mean_reward",), run_every=options.every, max_tokens=4, n_concurrent=8
    )
    bound = bind_benchmark(entry, tasks, registry=registry)
    return Evaluator([bound], renderer, seeds=Seeds(), registry=registry, record=record, deterministic=True)


async def run(options: argparse.Namespace, directory: Path, *, train: bool, score: bool) -> float:
    record = RunRecord(directory)
    record.create(directory.name)
    client = Elsewhere(await MockBackend().prepare(MODEL, directory, 0), options.step)
    evaluate = evaluator(options, client.renderer, record)
    ctx = bare_run(record, client, 4, evaluate=evaluate if score else None)
    started = time.perf_counter()
    if train:
        await Fixed(learning_rate=1e-4, batch_size=4, steps=options.steps, save_every=0).train(ctx)
    else:
        for step in range(options.every, options.steps + 1, options.every):
            await evaluate.submit(step, await client.sampling_client())
            await evaluate.drain()
    results = await evaluate.drain()
    seconds = time.perf_counter() - started
    assert [r.status for r in results] == ["completed"] * (options.steps // options.every if score else 0)
    record.close()
    return seconds


if __name__ == "__main__":
    main()
