"""What the server costs beside its backend: CPU of a sample and of a training step, memory over many requests.

    python bench/server.py [--samples 5000] [--steps 500] [--requests 0] [--concurrent 64] [--check]

Prints one JSON document. `evsys serve --backend mock` is a process of its own, so its CPU is read from the system and is all that it
takes: HTTP, the protocol, and the mock's own work, which `in_process` measures without a server. A sample is two requests, one
that asks for a token and one that fetches it; a step is a forward/backward pass over eight short texts and an optimiser
step, four requests. `--requests 100000` samples so long and watches the memory; by default half as many as `--samples` come twice.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from support.served import served

from evsys import current_registry
from evsys.types import AdamParams, Datum, LoraSpec, ModelSpec, SamplingParams
from evsys_server.wire.training import ForwardBackward, encode_request

BAR_MS = 0.6  # of a sample
BAR_GROWTH_KB = 100.0  # a thousand requests
MODEL = "evsys/tiny"
PROMPT = list(b"How do I reset my password?")
PROTOBUF = "application/x-protobuf"


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--requests", type=int, default=0, help="samples while memory is watched")
    parser.add_argument("--concurrent", type=int, default=64, help="samples at once")
    parser.add_argument("--check", action="store_true", help="end with 1 where a bar is missed")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="evsys-bench-server-") as folder,
        served(Path(folder, "server"), "mock", "--model", MODEL) as (url, pid),
    ):
        results = asyncio.run(measured(options, url, pid, Path(folder)))
    bars = {
        "sample.cpu_ms": (results["sample"]["server_cpu_ms"], BAR_MS),
        "memory.growth_kb_per_1000": (results["memory"]["growth_kb_per_1000"], BAR_GROWTH_KB),
    }
    document = {
        "format": 1,
        "bench": "server",
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "results": results,
        "bars": {
            name: {"at_most": bar, "value": value, "met": value <= bar} for name, (value, bar) in bars.items()
        },
    }
    print(json.dumps(document, indent=2))
    missed = [name for name, bar in document["bars"].items() if not bar["met"]]
    if options.check and missed:
        sys.exit(f"missed: {', '.join(missed)}")


async def measured(options: argparse.Namespace, url: str, pid: int, folder: Path) -> dict[str, Any]:
    """All figures."""
    connector = aiohttp.TCPConnector(limit=options.concurrent)
    async with aiohttp.ClientSession(connector=connector) as session:
        client = Client(f"{url}/api/v1", session)
        sample, step = await client.sampler(), await client.trainer()
        await many(sample, 200, options.concurrent)  # warm
        found = {
            "sample": await figures(
                pid, options.samples, lambda: many(sample, options.samples, options.concurrent)
            ),
            "step": await figures(pid, options.steps, lambda: many(step, options.steps, 1)),
        }
        found["memory"] = await memory(pid, sample, options.requests or options.samples, options.concurrent)
    found["in_process"] = await in_process(options, folder)
    return found


async def figures(pid: int, count: int, work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """CPU of the server and time, each."""
    cpu, start = cpu_seconds(pid), time.perf_counter()
    await work()
    seconds = time.perf_counter() - start
    return {
        "server_cpu_ms": round((cpu_seconds(pid) - cpu) / count * 1000, 3),
        "per_second": round(count / seconds, 1),
        "n": count,
    }


async def memory(
    pid: int, sample: Callable[[int], Awaitable[None]], count: int, concurrent: int
) -> dict[str, Any]:
    """Resident memory of the server after a first and a second half: what is kept for a while is full after the first."""
    await many(sample, max(count // 2, 4096), concurrent, first=10**6)
    before = resident(pid)
    await many(sample, count // 2, concurrent, first=10**7)
    growth = resident(pid) - before
    return {
        "requests": count,
        "resident_mb": round(resident(pid) / 1e6, 1),
        "growth_kb_per_1000": round(growth / 1e3 / (count / 2) * 1000, 1),
    }


async def many(
    call: Callable[[int], Awaitable[None]], count: int, concurrent: int, *, first: int | None = None
) -> None:
    """`count` calls, so many at once, each with a number of its own."""
    numbers = iter(range(count)) if first is None else iter(range(first, first + count))

    async def worker() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(worker() for _ in range(concurrent)))


class Client:
    """The protocol, as little of it as is needed."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session
        self.numbers = iter(range(1, 10**9))

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        async with self.session.post(f"{self.url}/{path}", json=body) as response:
            response.raise_for_status()
            return await response.json()

    async def promised(self, promise: dict[str, Any]) -> bytes:
        body = {"request_id": promise["request_id"]}
        while True:
            async with self.session.post(
                f"{self.url}/retrieve_future", json=body, headers={"Accept": PROTOBUF}
            ) as response:
                if response.status != 408:
                    response.raise_for_status()
                    return await response.read()

    async def new_session(self) -> str:
        body = {"tags": [], "user_metadata": None, "sdk_version": "bench"}
        return (await self.post("create_session", body))["session_id"]

    async def sampler(self) -> Callable[[int], Awaitable[None]]:
        body = {"session_id": await self.new_session(), "sampling_session_seq_id": 0, "base_model": MODEL}
        sampling = (await self.post("create_sampling_session", body))["sampling_session_id"]
        prompt = {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]}

        async def sample(_: int) -> None:
            asked = {
                "sampling_session_id": sampling,
                "seq_id": next(self.numbers),
                "num_samples": 1,
                "prompt": prompt,
                "sampling_params": {"max_tokens": 1, "seed": 1},
            }
            await self.promised(await self.post("asample", asked))

        return sample

    async def trainer(self) -> Callable[[int], Awaitable[None]]:
        session = await self.new_session()
        lora = {"rank": 8, "seed": 1}
        made = await self.post(
            "create_model",
            {"session_id": session, "model_seq_id": 0, "base_model": MODEL, "lora_config": lora},
        )
        await self.promised(made)
        model, numbers = made["model_id"], iter(range(1, 10**9))

        async def step(_: int) -> None:
            request = ForwardBackward(
                model_id=model, seq_id=next(numbers), data=tuple(batch()), loss_fn="cross_entropy"
            )
            async with self.session.post(
                f"{self.url}/forward_backward", data=encode_request(request)
            ) as response:
                response.raise_for_status()
                forward = await response.json()
            adam = {"model_id": model, "seq_id": next(numbers), "adam_params": {"learning_rate": 1e-3}}
            optim = await self.post("optim_step", adam)
            await self.promised(forward)
            await self.promised(optim)

        return step


async def in_process(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The mock's own CPU for the same work."""
    backend = current_registry().build("backend", "mock")
    client = await backend.prepare(ModelSpec(name=MODEL, lora=LoraSpec(rank=8)), folder, 1)
    sampler, params = await client.sampling_client(), SamplingParams(max_tokens=1, seed=1)

    async def sample(_: int) -> None:
        await sampler.sample(PROMPT, params)

    async def step(_: int) -> None:
        forward = client.forward_backward(batch(), "cross_entropy")
        optim = client.optim_step(AdamParams(learning_rate=1e-3))
        await forward
        await optim

    found = {}
    for name, call, count, concurrent in (
        ("sample_cpu_ms", sample, options.samples, options.concurrent),
        ("step_cpu_ms", step, options.steps, 1),
    ):
        start = time.process_time()
        await many(call, count, concurrent)
        found[name] = round((time.process_time() - start) / count * 1000, 3)
    return found


def batch() -> list[Datum]:
    """Eight short texts."""
    tokens = np.array(PROMPT)
    inputs = {"target_tokens": tokens[1:], "weights": np.ones(len(tokens) - 1, np.float32)}
    return [Datum(tokens=tokens[:-1], loss_inputs=inputs)] * 8


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Bytes of resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
