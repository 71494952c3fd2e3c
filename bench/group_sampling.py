"""Groups of rollouts: tokens a second where samples of a group share their prompt's prefix, against each sampled alone.

    python bench/group_sampling.py [--groups 8] [--size 8] [--prompt 512] [--tokens 32] [--rounds 3]

Prints one JSON document. The model is `evsys/tiny` on the `local` backend; prompts are of random bytes, new ones in each round, and
answers all have `--tokens` tokens. `shared` asks for a whole group at once, as rollouts that run side by side do: the prompt is
computed once. `alone` asks for one sample after the other, and keeps nothing of prompts. Tokens are those that were sampled.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import tempfile
import time
from pathlib import Path

import attrs

from evsys.types import ModelSpec, SamplingParams
from evsys_backend_local import LocalBackend


def prompts_of(options: argparse.Namespace, number: int) -> list[list[int]]:
    drawn = random.Random(number)
    return [[drawn.randrange(97, 123) for _ in range(options.prompt)] for _ in range(options.groups)]


async def shared(sampler, prompts, sampling, size):
    """Every group at once, one after the other; gives the tokens that were sampled."""
    tokens = 0
    for prompt in prompts:
        group = (sampler.sample(prompt, attrs.evolve(sampling, seed=index)) for index in range(size))
        tokens += sum(len(result.sequences[0].tokens) for result in await asyncio.gather(*group))
    return tokens


async def alone(sampler, prompts, sampling, size):
    """Sample by sample; gives the tokens that were sampled."""
    tokens = 0
    for prompt in prompts:
        for index in range(size):
            result = await sampler.sample(prompt, attrs.evolve(sampling, seed=index))
            tokens += len(result.sequences[0].tokens)
    return tokens


async def measured(options: argparse.Namespace, way, cache: int, number: int) -> dict[str, float]:
    """The best round of one way."""
    # Without stop tokens nothing ends an answer, so that all are of one length.
    sampling = SamplingParams(max_tokens=options.tokens, temperature=1.0)
    backend = LocalBackend(prefix_cache_mb=cache)
    wall, cpu = [], []
    with tempfile.TemporaryDirectory() as folder:
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), Path(folder), 0)
        try:
            sampler = await client.sampling_client()
            for round_number in range(options.rounds):
                prompts = prompts_of(options, 100 * number + round_number)
                started = time.perf_counter(), time.process_time()
                tokens = await way(sampler, prompts, sampling, options.size)
                assert tokens == options.groups * options.size * options.tokens
                wall.append(time.perf_counter() - started[0])
                cpu.append(time.process_time() - started[1])
            await sampler.close()
        finally:
            await backend.teardown(client)
    return {
        "tokens_per_second": round(tokens / min(wall), 1),
        "cpu_us_per_token": round(1e6 * min(cpu) / tokens, 1),
    }


async def report(options: argparse.Namespace) -> dict[str, object]:
    together = await measured(options, shared, 256, 1)
    one_by_one = await measured(options, alone, 0, 2)
    return {
        "format": 1,
        "bench": "group_sampling",
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        **vars(options),
        "shared": together,
        "alone": one_by_one,
        "times_faster": round(together["tokens_per_second"] / one_by_one["tokens_per_second"], 2),
        "cpu_share": round(together["cpu_us_per_token"] / one_by_one["cpu_us_per_token"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--size", type=int, default=8, help="samples of a group")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    print(json.dumps(asyncio.run(report(parser.parse_args()))))


if __name__ == "__main__":
    main()
