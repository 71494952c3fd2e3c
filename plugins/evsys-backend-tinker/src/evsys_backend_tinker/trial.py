"""A small training on any backend, and everything that it gave, for comparing with another or with itself."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys.types import AdamParams, Checkpoint, Datum, ModelSpec, SamplingParams
from evsys_runtime import BUILTIN_LOSSES, compute_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Backend, TrainingClient

__all__ = ["LOSSES", "Trial", "try_backend"]

STEPS = 3
LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo")

_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "A model that is trained twice on the same words says the same.",
)
_ADAM = AdamParams(learning_rate=1e-3)
_SEED = 7

type Make = Callable[[], Backend]


@attrs.frozen(kw_only=True)
class Trial:
    """The results of a backend.

    Attributes:
        untrained: logprobs of all texts before any step.
        losses: of each step, in nats a token.
        trained: logprobs of all texts after each step.
        restored: logprobs after a state was loaded, the first before and the second after one more step.
        cold: the same step without the optimiser's state.
        onward: the same step without loading.
        sampler: logprobs of the first text by the sampler, after all steps.
        prompt: how many logprobs a prompt of the first text has.
        repeats: the same seed gives the same sample.
        own_losses: by loss, the server's value and ours of the same logprobs; None if it refused, with its words in
            `refused`.
    """

    untrained: Sequence[float]
    losses: Sequence[float]
    trained: Sequence[Sequence[float]]
    restored: Sequence[Sequence[float]]
    cold: Sequence[float]
    onward: Sequence[float]
    sampler: Sequence[float]
    prompt: str | None
    repeats: bool
    own_losses: Mapping[str, tuple[float, float] | None]
    refused: Mapping[str, str]
    first: int


async def try_backend(make: Make, model: ModelSpec) -> Trial:
    """Train on a backend, save, restore, and sample; four models are made, each with a few steps on two sentences.

    Args:
        make: a new backend, for each model.
        model: what is trained.

    Raises:
        EvsysError: the backend can't do the least of it.
    """
    with tempfile.TemporaryDirectory(prefix="evsys-probe-") as name:
        folder = Path(name)
        async with _client(make, model, folder) as client:
            data = _data(client)
            untrained = await _logprobs(client, data)
            losses, trained = [], []
            for _ in range(STEPS):
                losses.append(await _step(client, data))
                trained.append(await _logprobs(client, data))
            sampler, prompt, repeats = await _sample_text(client, data[0])
            state = dict(await client.save_state(folder))
            await _step(client, data)
            onward = await _logprobs(client, data)
        checkpoint = Checkpoint(step=STEPS, directory=folder, state=state)
        async with _client(make, model, folder, checkpoint) as client:
            restored = [await _logprobs(client, data)]
            await _step(client, data)
            restored.append(await _logprobs(client, data))
        async with _client(make, model, folder, attrs.evolve(checkpoint, with_optimizer=False)) as client:
            await _step(client, data)
            cold = await _logprobs(client, data)
        own, refused = await _own_losses(make, model, folder, data)
    return Trial(
        untrained=untrained,
        losses=losses,
        trained=trained,
        restored=restored,
        cold=cold,
        onward=onward,
        sampler=sampler,
        prompt=prompt,
        repeats=repeats,
        own_losses=own,
        refused=refused,
        first=len(data[0].tokens),
    )


@asynccontextmanager
async def _client(
    make: Make, model: ModelSpec, folder: Path, restore: Checkpoint | None = None
) -> AsyncIterator[TrainingClient]:
    backend = make()
    client: TrainingClient | None = None
    try:
        client = await backend.prepare(model, folder, _SEED, restore)
        yield client
    finally:
        await backend.teardown(client)


def _data(client: TrainingClient) -> list[Datum]:
    rows = [np.array(client.tokenizer.encode(text), np.int64) for text in _TEXTS]
    count = sum(len(row) - 1 for row in rows)
    return [
        Datum(
            tokens=row[:-1],
            loss_inputs={
                "target_tokens": row[1:],
                "weights": np.full(len(row) - 1, 1 / count, np.float32),
            },
        )
        for row in rows
    ]


async def _logprobs(client: TrainingClient, data: Sequence[Datum]) -> list[float]:
    result = await client.forward(data)
    return [float(value) for array in result.logprobs for value in array]


async def _step(client: TrainingClient, data: Sequence[Datum]) -> float:
    forward = client.forward_backward(data, "cross_entropy")
    optim = client.optim_step(_ADAM)
    result = await forward
    await optim
    return float("nan") if result.loss is None else result.loss


async def _sample_text(client: TrainingClient, datum: Datum) -> tuple[list[float], str | None, bool]:
    """The sampler's logprobs of a text, what is wrong with those of a prompt, and whether a seed repeats a sample."""
    tokens = [*datum.tokens.tolist(), int(datum.loss_inputs["target_tokens"][-1])]
    sampler = await client.sampling_client()
    try:
        said = await sampler.compute_logprobs(tokens)
        params = SamplingParams(max_tokens=8, seed=_SEED)
        twice = [(await sampler.sample(tokens[:8], params)).sequences[0].tokens for _ in range(2)]
        wrong = None
        try:
            await sampler.sample(tokens, attrs.evolve(params, max_tokens=1, prompt_logprobs=True))
        except BackendError as error:
            wrong = error.message
    finally:
        await sampler.close()
    return [float(value) for value in said[1:]], wrong, list(twice[0]) == list(twice[1])


async def _own_losses(
    make: Make, model: ModelSpec, folder: Path, data: Sequence[Datum]
) -> tuple[dict[str, tuple[float, float] | None], dict[str, str]]:
    """Each loss of the backend's own on new weights, and what evsys makes of the same logprobs."""
    found: dict[str, tuple[float, float] | None] = {}
    refused: dict[str, str] = {}
    async with _client(make, model, folder) as client:
        before = (await client.forward(data)).logprobs
        batch = [
            attrs.evolve(datum, loss_inputs={**datum.loss_inputs, **_off_policy(logprobs)})
            for datum, logprobs in zip(data, before, strict=True)
        ]
        for name in LOSSES:
            try:
                result = await client.forward_backward(batch, name)
            except BackendError as error:
                found[name], refused[name] = None, error.message
                continue
            ours = compute_loss(BUILTIN_LOSSES[name], batch, before).loss
            found[name] = (float("nan") if result.loss is None else result.loss, ours)
    return found, refused


def _off_policy(logprobs: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """A sampler that was a little behind, and advantages of both signs."""
    count = len(logprobs)
    drift = np.linspace(-0.4, 0.4, count)
    return {
        "logprobs": np.asarray(logprobs - drift, np.float32),
        "advantages": np.asarray(np.where(np.arange(count) % 2, 1.0, -0.5), np.float32),
    }
