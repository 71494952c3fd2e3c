"""A short training on a few bytes, and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evsys.protocols import TrainingClient
from evsys.types import AdamParams, Datum, LoraSpec, ModelSpec
from evsys_backend_tinker import TinkerBackend

MODEL = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4))
ADAM = AdamParams(learning_rate=1e-2)
TEXTS = ("hello world", "to be or not", "evsys trains", "a b c d e f")


def datum(text: str) -> Datum:
    """A text, every token of which is trained."""
    tokens = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    return Datum(
        tokens=tokens[:-1],
        loss_inputs={"target_tokens": tokens[1:], "weights": np.full(len(tokens) - 1, 0.25, np.float32)},
    )


async def step(client: TrainingClient, index: int) -> float:
    """One pipelined step on one text; its loss."""
    forward = client.forward_backward([datum(TEXTS[index % len(TEXTS)])], "cross_entropy")
    optim = client.optim_step(ADAM)
    result = await forward
    await optim
    assert result.loss is not None
    return result.loss


async def steps(client: TrainingClient, first: int, count: int) -> list[float]:
    """Some steps; their losses."""
    return [await step(client, index) for index in range(first, first + count)]


async def logprobs(client: TrainingClient) -> list[float]:
    """What the model makes of all texts."""
    result = await client.forward([datum(text) for text in TEXTS])
    return [float(value) for array in result.logprobs for value in array]


def backend(base_url: str, **params: Any) -> TinkerBackend:
    """One for a server of ours, with little patience."""
    return TinkerBackend(provider="evsys", base_url=base_url, **params)


async def trained(
    base_url: str, folder: Path, count: int = 4, **params: Any
) -> tuple[list[float], list[float]]:
    """Losses of a whole short training, and what the model makes of all texts then."""
    made = backend(base_url, **params)
    client = await made.prepare(MODEL, folder, 0)
    try:
        return await steps(client, 0, count), await logprobs(client)
    finally:
        await made.teardown(client)
