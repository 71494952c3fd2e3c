"""What a rollout's own address costs: CPU of a call over HTTP, beside the same call of the model as an object.

    python bench/endpoint.py [--calls 2000] [--rounds 3] [--prompts 256 4096] [--check]

Prints one JSON document. Who asks is a process of its own; counted is the CPU of the process that answers: reading the request,
rendering, sampling from a model that answers at once with 16 tokens, parsing, recording, answering. `added_ms` is what that takes
beyond the call as an object, `added_us_per_token` how much of it comes with each token of the prompt beyond the first length.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time

from support.instant import InstantModel

from evsys.types import Message, SamplingParams
from evsys_runtime.evaluation.recording import RecordingModel
from evsys_runtime.rendering.policy_client import PolicyClient
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.serving.rollouts import RolloutEndpoints

BARS = {"added_ms": 1.5, "added_us_per_token": 1.0}
SAMPLING = SamplingParams(max_tokens=64, seed=1)
RENDERER = load_renderer("evsys/tiny")
ANSWER = [*b"the answer, 42.", RENDERER.stop_token_ids[0]]
CALLS_A_ROLLOUT = 100
ASKER = """
import http.client, json, sys
from urllib.parse import urlsplit

for line in sys.stdin:
    asked = json.loads(line)
    url = urlsplit(asked["base_url"])
    connection = http.client.HTTPConnection(url.hostname, url.port)
    for body in asked["bodies"]:
        connection.request("POST", url.path + "/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()
    print(flush=True)
"""


def instruction(tokens: int, number: int) -> str:
    """A text whose prompt has so many tokens."""
    empty = len(RENDERER.render_prompt([Message(role="user", content="")]))
    return f"{number:06d}".ljust(tokens - empty, "x")


def recording() -> RecordingModel:
    return RecordingModel(PolicyClient(InstantModel(ANSWER), RENDERER), SAMPLING)


async def as_object(texts: list[str]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    for start in range(0, len(texts), CALLS_A_ROLLOUT):
        model = recording()
        for text in texts[start : start + CALLS_A_ROLLOUT]:
            await model.generate([Message(role="user", content=text)], SAMPLING)
    return (time.process_time() - started) / len(texts)


async def at_an_address(
    texts: list[str], endpoints: RolloutEndpoints, asker: asyncio.subprocess.Process
) -> float:
    """CPU seconds of a call in this process."""
    bodies = [
        json.dumps({"model": "instant", "messages": [{"role": "user", "content": text}]}) for text in texts
    ]
    spent = 0.0
    for start in range(0, len(texts), CALLS_A_ROLLOUT):
        model = recording()
        async with endpoints.open(model) as endpoint:
            asked = {"base_url": endpoint.base_url, "bodies": bodies[start : start + CALLS_A_ROLLOUT]}
            asker.stdin.write(json.dumps(asked).encode() + b"\n")
            started = time.process_time()
            await asker.stdin.drain()
            await asker.stdout.readline()
            spent += time.process_time() - started
        assert len(model.turns) == len(asked["bodies"])
    return spent / len(texts)


async def measured(options: argparse.Namespace) -> list[dict[str, float]]:
    endpoints = RolloutEndpoints(model="instant", tokenizer=RENDERER.tokenizer)
    pipe = asyncio.subprocess.PIPE
    asker = await asyncio.create_subprocess_exec(sys.executable, "-c", ASKER, stdin=pipe, stdout=pipe)
    lines = []
    try:
        for tokens in options.prompts:
            texts = [instruction(tokens, number) for number in range(options.calls)]
            alone = [await as_object(texts) for _ in range(options.rounds)]
            served = [await at_an_address(texts, endpoints, asker) for _ in range(options.rounds)]
            lines.append(
                {
                    "prompt_tokens": tokens,
                    "object_ms": round(1000 * min(alone), 3),
                    "address_ms": round(1000 * min(served), 3),
                    "added_ms": round(1000 * (min(served) - min(alone)), 3),
                }
            )
    finally:
        asker.stdin.close()
        await asker.wait()
        await endpoints.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--prompts", type=int, nargs=2, default=[256, 4096], help="lengths of prompts in tokens"
    )
    parser.add_argument("--check", action="store_true", help="end with 1 where a bar is missed")
    options = parser.parse_args()
    lines = asyncio.run(measured(options))
    few, many = lines
    further = many["prompt_tokens"] - few["prompt_tokens"]
    found = {
        "added_ms": few["added_ms"],
        "added_us_per_token": round(1000 * (many["added_ms"] - few["added_ms"]) / further, 4),
    }
    document = {
        "format": 1,
        "bench": "endpoint",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "lines": lines,
        **found,
        "bars": BARS,
    }
    print(json.dumps(document))
    if options.check and any(found[name] > bar for name, bar in BARS.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
