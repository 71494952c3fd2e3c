"""Sampling beside training: a snapshot is frozen, and what is drawn from it depends on nothing that happens meanwhile."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from evsys.types import AdamParams, Datum, SamplingParams
from evsys_backend_local.client import LocalTrainingClient
from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.threads import DaemonExecutor
from evsys_backend_local.sampling import SampleQueue

PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [1, 2, 10], [3]]
TEXT = [1, 2, 3, 4, 5, 6, 7, 8]
DRAWN = SamplingParams(max_tokens=12, temperature=1.0, seed=3)


@pytest.fixture
def make_client(make_engine, randomise):
    def make(kind):
        engine = make_engine(np.float32, max_rows=16)
        model = randomise(engine.create_adapter(rank=3)) if kind == "adapter" else engine.create_full()
        return LocalTrainingClient(engine, model, None, DaemonExecutor(1, "test"), seed=0)

    return make


def batch():
    rng = np.random.default_rng(1)
    return [
        Datum(
            tokens=rng.integers(0, 17, 12),
            loss_inputs={"target_tokens": rng.integers(0, 17, 12), "weights": np.full(12, 0.1)},
        )
        for _ in range(6)
    ]


async def drawn(sampler, rounds=3):
    """Samples in waves, then logprobs."""
    found = []
    for _ in range(rounds):
        results = await asyncio.gather(*(sampler.sample(prompt, DRAWN, n=2) for prompt in PROMPTS))
        found += [(s.tokens, list(s.logprobs)) for result in results for s in result.sequences]
    return found, (await sampler.compute_logprobs(TEXT)).tobytes()


async def train(client, steps=5):
    losses = []
    for _ in range(steps):
        forward = client.forward_backward(batch(), "cross_entropy")
        step = client.optim_step(AdamParams(learning_rate=0.05))
        losses.append((await forward).loss)
        await step
    return losses


@pytest.mark.parametrize("kind", ["adapter", "all weights"])
def test_training_on_changes_no_bit_of_what_a_snapshot_gives_and_is_changed_by_none_of_it(make_client, kind):
    async def one_after_another():
        client = make_client(kind)
        await train(client)
        found = await drawn(await client.sampling_client())
        return found, await train(client), client._model.digest

    async def beside_each_other():
        client = make_client(kind)
        await train(client)
        sampler = await client.sampling_client()
        sampling = asyncio.create_task(drawn(sampler))
        losses = await train(client)
        after = await client.sampling_client()
        other = asyncio.create_task(drawn(after))
        found = await sampling
        assert (await other) != found
        assert (sampler.version, after.version) == (5, 10)
        assert await drawn(sampler) == found
        return found, losses, client._model.digest

    assert asyncio.run(beside_each_other()) == asyncio.run(one_after_another())


class Batches:
    """An engine that notes which requests came together, by snapshot."""

    def __init__(self):
        self.by_snapshot = {}

    def sample(self, snapshot, requests, *, abort):
        self.by_snapshot.setdefault(snapshot, []).append(list(requests))
        return list(requests)


def batches_of(arrivals):
    """What came together where `arrivals` says at which turn of the loop a snapshot's request is made."""

    async def ask():
        engine, executor = Batches(), DaemonExecutor(1, "test")
        queue = SampleQueue(engine, executor, Abort())

        async def later(snapshot, turn):
            for _ in range(turn):
                await asyncio.sleep(0)
            return await queue.ask(snapshot, turn)

        await asyncio.gather(*(later(snapshot, turn) for snapshot, turns in arrivals for turn in turns))
        executor.shutdown()
        assert queue._calls == {}
        return engine.by_snapshot

    return asyncio.run(ask())


@pytest.mark.parametrize("others", [[0], [1], [2], [3], [1, 3], [0, 2, 4, 6], range(12)], ids=str)
@pytest.mark.parametrize("gap", range(1, 6))
def test_what_comes_together_does_not_depend_on_what_is_asked_of_another_snapshot(gap, others):
    own = [4, 4, 4 + gap]
    alone = batches_of([("own", own)])["own"]
    for arrivals in ([("other", others), ("own", own)], [("own", own), ("other", others)]):
        assert batches_of(arrivals)["own"] == alone
