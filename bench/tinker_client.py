"""What the tinker backend adds to the official client: per call, per step, and over a whole training, beside straight loops on the client.

    python bench/tinker_client.py [--steps 200] [--samples 200] [--whole 60]

Needs the package `tinker`, as `nox -s tinker` has it. Prints one JSON document. The server is `evsys serve` in a process of its own, `mock` for
single calls, which is then almost nothing but the protocol, and `local` for the whole training. CPU is this process's alone, whose threads do the
client's work too. The whole training is supervised, 32 rows a step, rendered as they are needed. `straight` waits for each step
before it makes the next batch, as the client's own examples do; `evsys` makes it meanwhile.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from support.served import served

from evsys.types import AdamParams, Datum, LoraSpec, Message, ModelSpec, SamplingParams

MODEL = "evsys/tiny"
SPEC = ModelSpec(name=MODEL, lora=LoraSpec(rank=8))
ADAM = AdamParams(learning_rate=1e-3)
PROMPT = list(b"How do I reset my password?")
TEXTS = [f"turn of word{index}" for index in range(600)]
ROWS = 32


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--whole", type=int, default=60, help="steps of the whole training")
    options = parser.parse_args()
    if find_spec("tinker") is None:
        sys.stdout.write(
            '{"format": 1, "bench": "tinker_client", "skipped": "the package tinker isn\'t installed"}\n'
        )
        return
    with tempfile.TemporaryDirectory(prefix="evsys-bench-tinker-") as name:
        folder = Path(name)
        with served(folder / "server-mock", "mock") as (url, _):
            calls = {
                "straight": straight_calls(url, options),
                "evsys": asyncio.run(our_calls(url, options, folder)),
            }
        with served(folder / "server-local", "local") as (url, _):
            whole = {
                "straight": straight_training(url, options.whole),
                "evsys": asyncio.run(our_training(url, options.whole, folder)),
            }
    document = {
        "format": 1,
        "bench": "tinker_client",
        "python": platform.python_version(),
        "tinker": version("tinker"),
        "calls": calls,
        "whole": whole,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def figures(count: int, started: float, cpu: float) -> dict[str, float]:
    """Time and CPU, each, in milliseconds."""
    return {
        "ms": round((time.perf_counter() - started) / count * 1000, 3),
        "cpu_ms": round((time.process_time() - cpu) / count * 1000, 3),
    }


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


# --- single calls -----------------------------------------------------------------------------------------------------


def batch() -> list[Datum]:
    rows = [np.frombuffer(text.encode(), np.uint8).astype(np.int64) for text in TEXTS[:8]]
    return [
        Datum(
            tokens=row[:-1],
            loss_inputs={"target_tokens": row[1:], "weights": np.full(len(row) - 1, 0.01, np.float32)},
        )
        for row in rows
    ]


def resolved(outcome: Any) -> Any:
    return outcome.result() if hasattr(outcome, "result") else outcome


def theirs(data: list[Datum]) -> list[Any]:
    import tinker

    return [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints(datum.tokens.tolist()),
            loss_fn_inputs=dict(datum.loss_inputs),
        )
        for datum in data
    ]


def bare(url: str) -> Any:
    import tinker

    service = tinker.ServiceClient(base_url=url, api_key="tml-bench")
    return resolved(service.create_lora_training_client(MODEL, rank=8, seed=0, train_unembed=False))


def adam() -> Any:
    import tinker

    return tinker.AdamParams(learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=1.0)


def straight_calls(url: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The client alone: a step's two calls submitted together, and samples one after another."""
    import tinker

    model, data = bare(url), batch()

    def step() -> None:
        forward = model.forward_backward(theirs(data), "cross_entropy")
        optim = model.optim_step(adam())
        forward.result()
        optim.result()

    step()
    start = now()
    for _ in range(options.steps):
        step()
    found = {"step": figures(options.steps, *start)}
    sampler = resolved(model.save_weights_and_get_sampling_client())
    params = tinker.SamplingParams(max_tokens=1, seed=1)
    start = now()
    for _ in range(options.samples):
        sampler.sample(tinker.ModelInput.from_ints(PROMPT), 1, params).result()
    return {**found, "sample": figures(options.samples, *start)}


async def our_calls(url: str, options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """The same through the backend."""
    from evsys_backend_tinker import TinkerBackend

    made, data = TinkerBackend(provider="evsys", base_url=url), batch()
    client = await made.prepare(SPEC, folder, 0)

    async def step() -> None:
        forward, optim = client.forward_backward(data, "cross_entropy"), client.optim_step(ADAM)
        await forward
        await optim

    await step()
    start = now()
    for _ in range(options.steps):
        await step()
    found = {"step": figures(options.steps, *start)}
    sampler = await client.sampling_client()
    params = SamplingParams(max_tokens=1, seed=1)
    start = now()
    for _ in range(options.samples):
        await sampler.sample(PROMPT, params)
    found["sample"] = figures(options.samples, *start)
    await made.teardown(client)
    return found


# --- a whole training -------------------------------------------------------------------------------------------------


def rendering() -> Callable[[int], list[Datum]]:
    """The batch of a step, rendered when it is asked for."""
    from evsys_runtime.rendering.resolve import load_renderer

    renderer = load_renderer(MODEL)

    def made(index: int) -> list[Datum]:
        data = []
        for row in range(index * ROWS, (index + 1) * ROWS):
            text = TEXTS[row % len(TEXTS)]
            messages = [Message(role="user", content=text), Message(role="assistant", content=text[::-1])]
            [(tokens, weights)] = renderer.render_training(messages)
            data.append(
                Datum(
                    tokens=np.array(tokens[:-1], np.int64),
                    loss_inputs={
                        "target_tokens": np.array(tokens[1:], np.int64),
                        "weights": np.array(weights[1:], np.float32) / ROWS,
                    },
                )
            )
        return data

    return made


def straight_training(url: str, steps: int) -> dict[str, float]:
    """A plain loop on the client: batch, step, wait."""
    model, made = bare(url), rendering()
    start = now()
    for index in range(steps):
        forward = model.forward_backward(theirs(made(index)), "cross_entropy")
        optim = model.optim_step(adam())
        forward.result()
        optim.result()
    return figures(steps, *start)


async def our_training(url: str, steps: int, folder: Path) -> dict[str, float]:
    """The same as evsys's loop does it: the next batch is made while a step is under way."""
    from evsys_backend_tinker import TinkerBackend

    backend, made = TinkerBackend(provider="evsys", base_url=url), rendering()
    client = await backend.prepare(SPEC, folder, 0)
    start = now()
    data = made(0)
    for index in range(steps):
        forward, optim = client.forward_backward(data, "cross_entropy"), client.optim_step(ADAM)
        if index + 1 < steps:
            data = made(index + 1)
        await forward
        await optim
    found = figures(steps, *start)
    await backend.teardown(client)
    return found


if __name__ == "__main__":
    main()
