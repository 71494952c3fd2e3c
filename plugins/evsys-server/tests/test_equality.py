"""The numbers of a backend are those of a client on the other side of the wire, bit for bit."""

import asyncio

import attrs
import numpy as np
import pytest
from wire_client import datum

from evsys import current_registry
from evsys.types import AdamParams, Datum, LoraSpec, LossResult, ModelSpec, SamplingParams

ADAM = AdamParams(learning_rate=0.01 / 3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.01, grad_clip=1.0)
TEXTS = ["the cat sat on the mat", "hello world", "some other text"]
PROMPT = list(b"the cat")


def batch(step: int):
    """Weights that no float32 holds exactly before they are rounded, as an algorithm divides them."""
    return [
        datum(
            text, weights=np.full(len(text) - 1, 1 / (7 + step), np.float32) * (np.arange(len(text) - 1) > 3)
        )
        for text in TEXTS
    ]


def policy(text: str):
    size = len(text) - 1
    rng = np.random.default_rng(0)
    return datum(
        text,
        logprobs=rng.normal(-4, 1, size).astype(np.float32),
        advantages=rng.normal(0, 1, size).astype(np.float32),
        weights=np.ones(size, np.float32) / 3,
    )


async def in_process(kind: str, folder):
    backend = current_registry().build("backend", kind)
    spec = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4, alpha=16.0))
    client = await backend.prepare(spec, folder, 3)
    found = []
    for step in range(3):
        forward = client.forward_backward(batch(step), "cross_entropy")
        optim = client.optim_step(ADAM)
        found.append(((await forward).loss, (await optim).grad_norm))
    result = await client.forward_backward(
        [policy(text) for text in TEXTS], "ppo", {"clip_low": 0.2, "clip_high": 0.3}
    )
    optim = await client.optim_step(ADAM)
    found.append((result.loss, optim.grad_norm))
    logprobs = (await client.forward(batch(0))).logprobs
    sampler = await client.sampling_client()
    params = SamplingParams(max_tokens=8, seed=5, prompt_logprobs=True)
    sampled = await sampler.sample(PROMPT, params, 3)
    await backend.teardown(client)
    return found, logprobs, sampled


async def through_the_wire(client):
    model = await client.new_model(
        lora_config={"rank": 4, "seed": 3}, user_metadata={"evsys.lora_alpha": "16.0"}
    )
    adam = {**attrs.asdict(ADAM), "grad_clip_norm": ADAM.grad_clip}
    del adam["grad_clip"]
    found = []
    for step in range(3):
        output = await model.forward_backward(batch(step))
        optim = await model.optim_step(**adam)
        found.append((output.metrics["loss:sum"], optim["metrics"]["grad_norm"]))
    config = {"clip_low_threshold": 1 - 0.2, "clip_high_threshold": 1 + 0.3}
    output = await model.forward_backward([policy(text) for text in TEXTS], "ppo", loss_params=config)
    optim = await model.optim_step(**adam)
    found.append((output.metrics["loss:sum"], optim["metrics"]["grad_norm"]))
    logprobs = (await model.forward_backward(batch(0), forward_only=True)).logprobs
    sampler = await model.sampler()
    return (
        found,
        logprobs,
        await sampler.sample(PROMPT, 3, max_tokens=8, prompt_logprobs=True, params={"seed": 5}),
    )


@pytest.mark.parametrize("kind", ["mock", "local"])
def test_training_and_sampling_through_the_wire_give_the_bits_of_the_backend(with_server, tmp_path, kind):
    steps, logprobs, sampled = asyncio.run(in_process(kind, tmp_path))
    wire_steps, wire_logprobs, wire_sampled = with_server(through_the_wire, backend=kind, deterministic=True)
    assert wire_steps == steps  # float64
    for here, there in zip(logprobs, wire_logprobs, strict=True):
        assert np.array_equal(np.asarray(here, np.float32), there)
    for here, there in zip(sampled.sequences, wire_sampled.sequences, strict=True):
        assert list(here.tokens) == list(there.tokens)
        assert np.array_equal(np.asarray(here.logprobs, np.float32), np.asarray(there.logprobs, np.float32))
    assert np.array_equal(
        np.asarray(sampled.prompt_logprobs[1:], np.float32),
        np.asarray(wire_sampled.prompt_logprobs[1:], np.float32),
    )


def test_what_a_backend_didnt_compute_is_zero_on_the_wire(with_server):
    async def work(client):
        model = await client.new_model()
        output = await model.forward_backward(batch(0))
        return output.logprobs

    for array in with_server(work, backend="local"):
        assert np.isfinite(array).all()
        assert (array[:4] == 0).all()
        assert (array[4:] < 0).all()


# --- losses of one's own ----------------------------------------------------------------------------------------


def focal(data, logprobs) -> LossResult:
    """-(1 - p)^2 log p of each token (https://arxiv.org/abs/1708.02002)."""
    loss, grads = 0.0, []
    for values in logprobs:
        p = np.exp(values.astype(np.float64))
        loss -= float(np.sum((1 - p) ** 2 * values))
        grads.append((2 * p * (1 - p) * values - (1 - p) ** 2).astype(np.float32))
    return LossResult(loss=loss, grads=grads)


def preference(data, logprobs) -> LossResult:
    """-log sigmoid of the difference of a pair, the first preferred, against logprobs of a reference of -3 a token."""
    first, second = (float(values.sum() + 3 * len(values)) for values in logprobs)
    slope = 0.1 / (1 + np.exp(0.1 * (first - second)))
    grads = [
        np.full(len(values), sign * slope, np.float32) for values, sign in zip(logprobs, (-1, 1), strict=True)
    ]
    return LossResult(loss=float(np.logaddexp(0, -0.1 * (first - second))), grads=grads)


def sequence_ratio(data, logprobs) -> LossResult:
    """-A exp(mean log r) of each sequence, one better and one worse than the average."""
    loss, grads = 0.0, []
    for values, advantage in zip(logprobs, (1.0, -1.0), strict=True):
        ratio = float(np.exp(np.mean(values.astype(np.float64) + 4)))
        loss -= advantage * ratio
        grads.append(np.full(len(values), -advantage * ratio / len(values), np.float32))
    return LossResult(loss=loss, grads=grads)


PAIR = [datum("the cat sat on the mat"), datum("the cat sat under it")]


@pytest.mark.parametrize("loss", [focal, preference, sequence_ratio])
def test_a_loss_of_ones_own_gives_the_same_weights_in_one_pass_and_in_two_through_the_wire(
    with_server, tmp_path, loss
):
    async def one_pass():
        backend = current_registry().build("backend", "local")
        client = await backend.prepare(ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4)), tmp_path, 3)
        norms = []
        for _ in range(3):
            forward, optim = client.forward_backward(PAIR, loss), client.optim_step(ADAM)
            await forward
            norms.append((await optim).grad_norm)
        logprobs = (await client.forward(PAIR)).logprobs
        await backend.teardown(client)
        return norms, logprobs

    async def two_passes(client):
        model = await client.new_model(lora_config={"rank": 4, "seed": 3})
        adam = {**attrs.asdict(ADAM), "grad_clip_norm": ADAM.grad_clip}
        del adam["grad_clip"]
        norms = []
        for _ in range(3):
            output = await model.forward_backward(PAIR, forward_only=True)
            grads = loss(PAIR, output.logprobs).grads
            weighted = [
                Datum(tokens=one.tokens, loss_inputs={**one.loss_inputs, "weights": -grad})
                for one, grad in zip(PAIR, grads, strict=True)
            ]
            await model.forward_backward(weighted)
            norms.append((await model.optim_step(**adam))["metrics"]["grad_norm"])
        return norms, (await model.forward_backward(PAIR, forward_only=True)).logprobs

    norms, logprobs = asyncio.run(one_pass())
    wire_norms, wire_logprobs = with_server(two_passes, backend="local", deterministic=True)
    assert wire_norms == norms
    for here, there in zip(logprobs, wire_logprobs, strict=True):
        assert np.array_equal(here, there)
