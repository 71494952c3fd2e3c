"""What `rl` costs beside the model: a step's overhead, and rollouts a second of its pipeline; prints one JSON document.

512 trajectories of 100 tokens are there already. `between` is what `rl` does between the last of its rollouts and the next: the batch
and its metrics. `parts` says where it goes, and what it costs to judge groups, which is done as they come in. `step` is all of that with the
training loop and its record, on a client that answers at once. `pipeline` makes rollouts with a sampler that answers at
once, judged and put on disk, at several numbers in flight. CPU milliseconds, the least of several runs; records are written by a
thread of the process, so their CPU is in `cpu_ms`.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from support.bare_run import Rows, bare_run
from support.instant import InstantModel

from evsys import Registry, use_registry
from evsys.types import (
    ForwardResult,
    HarborTask,
    Message,
    OptimResult,
    Rollout,
    Score,
    Turn,
    VerifierSpec,
)
from evsys_algo_rl import RL
from evsys_algo_rl.batches import make_data
from evsys_algo_rl.groups import judge
from evsys_algo_rl.health import ratio_metrics, rollout_metrics
from evsys_record.run_record import RunRecord
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.rendering.resolve import load_renderer

GROUPS, GROUP_SIZE, PROMPT, ANSWER = 64, 8, 50, 50
BUDGET = 5.0  # CPU milliseconds of `between`
BETWEEN = ("make_data", "rollout_metrics", "ratio_metrics")
IN_FLIGHT = (1, 8, 64, 256)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="steps of each run")
    parser.add_argument("--runs", type=int, default=5, help="runs (the least counts)")
    parser.add_argument("--check", action="store_true", help="end with 1 if the budget is exceeded")
    options = parser.parse_args()
    steps = [asyncio.run(step_cost(options.steps)) for _ in range(options.runs)]
    found = parts(options.runs)
    between = round(sum(found[name] for name in BETWEEN), 3)
    document = {
        "python": platform.python_version(),
        "unit": "CPU milliseconds",
        "trajectories": GROUPS * GROUP_SIZE,
        "tokens_of_each": PROMPT + ANSWER,
        "budget_between": BUDGET,
        "between": between,
        "parts": found,
        "step": round(min(steps), 3),
        "pipeline": [
            {"in_flight": width, **asyncio.run(pipeline(width, max(4 * width, 400)))} for width in IN_FLIGHT
        ],
    }
    print(json.dumps(document, indent=2))
    if options.check and between > BUDGET:
        sys.exit(f"over budget: `rl` takes {between} ms between rollouts and backend")


# --- a step -------------------------------------------------------------------------------------------------------------


def rollouts(count: int) -> list[Rollout]:
    """Finished rollouts of one task, as engines give them."""
    rng = np.random.default_rng(count)
    found = []
    for index in range(GROUP_SIZE):
        turn = Turn(
            message=Message(role="assistant", content="x" * ANSWER),
            prompt_tokens=rng.integers(0, 256, PROMPT).tolist(),
            tokens=rng.integers(0, 256, ANSWER).tolist(),
            logprobs=(-rng.uniform(0.1, 2.0, ANSWER)).tolist(),
        )
        score = Score(value=float(index % 2))
        found.append(
            Rollout(task_id=f"task-{count}", sample_index=index, turns=(turn,), score=score, policy_version=0)
        )
    return found


READY = [rollouts(i) for i in range(GROUPS)]


class Ready:
    """Training rollouts that are there already."""

    async def collect(
        self, tasks: Sequence[HarborTask], *args: object, **options: object
    ) -> AsyncIterator[Rollout]:
        for task in tasks:
            for rollout in READY[int(task.task_id.partition("-")[2])]:
                yield rollout


class AnswersAtOnce:
    """A training client whose calls cost nothing, and a policy that is never asked."""

    capabilities = frozenset({"loss_fns"})
    version = 0

    async def forward_backward(self, data, loss_fn, loss_params=None):
        return ForwardResult(logprobs=[d.loss_inputs["logprobs"] for d in data], loss=1.0, tokens=51_200)

    async def optim_step(self, params):
        return OptimResult(grad_norm=1.0)

    async def save_state(self, directory):
        return {}

    async def sampling_client(self):
        return self

    async def close(self):
        pass


def tasks() -> Rows:
    verifier = VerifierSpec(name="half")
    return Rows(
        HarborTask(task_id=f"task-{i}", instruction=f"say {i}", verifier=verifier) for i in range(GROUPS)
    )


def algorithm(steps: int, **params: object) -> RL:
    return RL(
        batch_size=GROUPS, group_size=GROUP_SIZE, steps=steps, learning_rate=1e-4, save_every=0, **params
    )


async def step_cost(steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        record = RunRecord(Path(folder, "run"))
        record.create("run")
        ctx = attrs.evolve(bare_run(record, AnswersAtOnce(), GROUPS), data=tasks(), rollouts=Ready())
        started = time.process_time()
        await algorithm(steps).train(ctx)
        spent = time.process_time() - started
        record.close()
    return spent / steps * 1e3


def parts(runs: int) -> dict[str, float]:
    """Where a step's time goes."""
    params = algorithm(1).config
    found: dict[str, list[float]] = {}

    def timed(name, call):
        started = time.process_time()
        value = call()
        found.setdefault(name, []).append((time.process_time() - started) * 1e3)
        return value

    for _ in range(2 * runs):
        groups = timed(
            "judge",
            lambda: [
                judge(f"task-{i}", group, params, position=i, version=0) for i, group in enumerate(READY)
            ],
        )
        data = timed("make_data", lambda groups=groups: make_data(groups, params, None))
        timed("rollout_metrics", lambda groups=groups: rollout_metrics(groups, "mean"))
        result = ForwardResult(logprobs=[d.loss_inputs["logprobs"] for d in data])
        timed("ratio_metrics", lambda data=data, result=result: ratio_metrics(data, result))
    return {name: round(min(times), 3) for name, times in found.items()}


# --- the pipeline ---------------------------------------------------------------------------------------------------------


class Samples(AnswersAtOnce):
    """The same client, with a policy that can be asked."""

    async def sampling_client(self):
        return InstantModel([104, 105, 257])


async def chat(task, model, ctx):
    found = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
    return found[0].message.content


def half(_output, _expected, _params):
    return 0.5


async def pipeline(width: int, count: int) -> dict[str, float]:
    """Rollouts a second at `width` in flight, judged, on disk."""
    registry = Registry()
    registry.register("verifier", "half", half)
    steps = max(1, count // (GROUPS * GROUP_SIZE)) + 2
    with tempfile.TemporaryDirectory() as folder, use_registry(registry):
        record = RunRecord(Path(folder, "run"))
        record.create("run")
        ctx = bare_run(record, Samples(), GROUPS)
        made = TrainingRollouts(
            renderer=load_renderer("evsys/tiny"),
            agent=FunctionAgent(chat),
            registry=registry,
            seeds=ctx.seeds,
            record=record,
        )
        ctx = attrs.evolve(ctx, data=tasks(), rollouts=made)
        rl = algorithm(steps, n_concurrent=width, max_staleness=1, max_flat_steps=steps + 1)
        started, cpu = time.perf_counter(), time.process_time()
        await rl.train(ctx)
        await made.close()
        seconds, spent = time.perf_counter() - started, time.process_time() - cpu
        record.close()
    total = steps * GROUPS * GROUP_SIZE
    return {
        "rollouts": total,
        "rollouts_per_second": round(total / seconds),
        "cpu_ms_per_rollout": round(spent / total * 1e3, 3),
    }


if __name__ == "__main__":
    main()
