"""A step's batch in several requests: the weights of one, the metrics of one, one step of the optimiser."""

import asyncio

import numpy as np
import pytest
from training_runs import chat_rows

from evsys import current_registry
from evsys.errors import BackendError
from evsys.types import AdamParams, Datum, ForwardResult, ModelSpec, TrainingBatch
from evsys_backend_mock import MockBackend
from evsys_runtime.losses import BUILTIN_LOSSES
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.two_pass import forward_backward

SIZES = (5, 7, 6, 4, 9)
ADAM = AdamParams(learning_rate=0.1, eps=1.0)
"""With so large an eps a step is in proportion to the gradient: nothing that rounding leaves of one is blown up."""


def dpo(data, logprobs):
    """Each pair's loss needs both of its sequences, wherever they are cut apart."""
    margins = [np.sum(x - d.loss_inputs["ref_logprobs"]) for d, x in zip(data, logprobs, strict=True)]
    return np.logaddexp(0.0, -0.1 * (np.stack(margins[:4:2]) - np.stack(margins[1:4:2]))).sum(), {
        "pairs": 2.0
    }


async def batch(model):
    rng = np.random.default_rng(0)
    data = []
    for n in SIZES:
        tokens = rng.integers(0, 250, n + 1)
        plain = Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:]})
        (now,) = (await model.forward([plain])).logprobs
        inputs = {
            "weights": rng.choice([0.0, 0.25], n).astype(np.float32),
            "advantages": rng.normal(size=n).astype(np.float32),
            "logprobs": (now + rng.normal(scale=0.2, size=n)).astype(np.float32),
            "ref_logprobs": (now + rng.normal(scale=0.2, size=n)).astype(np.float32),
        }
        data.append(Datum(tokens=plain.tokens, loss_inputs={**plain.loss_inputs, **inputs}))
    return data


class Counting:
    """A client that counts the requests it passes on, by their tokens."""

    def __init__(self, client):
        self.client = client
        self.requests = []

    def __getattr__(self, name):
        return getattr(self.client, name)

    def forward_backward(self, data, *more):
        self.requests.append(sum(len(datum.tokens) for datum in data))
        return self.client.forward_backward(data, *more)


@pytest.mark.parametrize("kind", ["mock", "local"])
@pytest.mark.parametrize("loss", [*BUILTIN_LOSSES, dpo], ids=lambda loss: getattr(loss, "__name__", loss))
async def test_parts_leave_the_weights_and_the_metrics_of_the_whole(tmp_path, kind, loss):
    found = []
    data = None
    for most in (None, 12):
        backend = current_registry().build("backend", kind)
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), tmp_path, 0)
        try:
            data = await batch(client) if data is None else data
            counting = Counting(client)
            result = await forward_backward(counting, backend.capabilities, data, loss, most_tokens=most)
            norm = (await client.optim_step(ADAM)).grad_norm
            after = [values.tolist() for values in (await client.forward(data)).logprobs]
        finally:
            await backend.teardown(client)
        found.append((counting.requests, result, norm, after))
    (one, whole, norm, after), (several, parts, norm_of_parts, after_parts) = found
    assert (one, several) == ([31], [12, 10, 9])
    near = 1e-9 if kind == "mock" and loss != dpo else 1e-5
    assert parts.loss == pytest.approx(whole.loss, rel=near)
    assert parts.metrics == pytest.approx(dict(whole.metrics), rel=near, abs=1e-6)
    assert parts.tokens == whole.tokens == 31
    assert [np.shape(values) for values in parts.logprobs] == [(size,) for size in SIZES]
    assert norm_of_parts == pytest.approx(norm, rel=near)
    for values, expected in zip(after_parts, after, strict=True):
        np.testing.assert_allclose(values, expected, rtol=max(near, 1e-6), atol=1e-6)  # local sums float32


async def test_a_datum_that_is_longer_than_a_part_is_one(tmp_path):
    client = Counting(await MockBackend().prepare(ModelSpec(name="m"), tmp_path, 0))
    data = await batch(client)
    await forward_backward(client, MockBackend.capabilities, data, "cross_entropy", most_tokens=1)
    assert client.requests == list(SIZES)


class Failing(Counting):
    """The second request fails; what becomes of the others is seen."""

    def __init__(self, client):
        super().__init__(client)
        self.cancelled = 0

    def forward_backward(self, data, *more):
        super().forward_backward(data, *more)
        return self._answer(len(self.requests))

    async def _answer(self, number):
        if number == 2:
            raise BackendError("no room")
        try:
            await asyncio.sleep(0 if number == 1 else 60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ForwardResult(logprobs=[], loss=0.0)


async def test_the_first_failure_is_told_and_cancellation_reaches_all_parts(tmp_path):
    client = Failing(await MockBackend().prepare(ModelSpec(name="m"), tmp_path, 0))
    data = await batch(client)
    with pytest.raises(BackendError, match="no room"):
        await forward_backward(client, MockBackend.capabilities, data, "cross_entropy", most_tokens=12)
    await asyncio.sleep(0)
    assert client.cancelled == 1


class Chatter(BaseAlgorithm):
    """Trains on the text of its rows."""

    prefetch = True

    def __init__(self, **fields):
        super().__init__(**{"learning_rate": 1e-3, "batch_size": 4, "steps": 6, "save_every": 2, **fields})

    async def build_batch(self, step_idx):
        rows = [self.ctx.data[i] for i in self.take_rows(step_idx)]
        encode = self.ctx.clients.policy.tokenizer.encode
        texts = [np.array(encode(row.messages[0].content)) for row in rows]
        total = sum(len(tokens) - 1 for tokens in texts)
        data = [
            Datum(
                tokens=tokens[:-1],
                loss_inputs={"target_tokens": tokens[1:], "weights": np.full(len(tokens) - 1, 1 / total)},
            )
            for tokens in texts
        ]
        return TrainingBatch(data=data, row_ids=tuple(row.row_id for row in rows))


async def test_a_run_in_parts_is_the_run_in_one(new_run):
    whole, parts = new_run("whole"), new_run("parts")
    await whole.train(Chatter(), chat_rows())
    await parts.train(Chatter(micro_batch_tokens=40), chat_rows())
    assert parts.batches() == whole.batches()
    for (step, found), (at, expected) in zip(parts.metrics(), whole.metrics(), strict=True):
        assert step == at
        assert found == pytest.approx(expected, rel=1e-6)


async def test_a_run_in_parts_is_resumed_to_the_bit(new_run):
    straight, broken = new_run("straight"), new_run("broken")
    await straight.train(Chatter(micro_batch_tokens=40), chat_rows())
    await broken.train(Chatter(micro_batch_tokens=40), chat_rows(), max_steps=3)
    await broken.train(Chatter(micro_batch_tokens=40), chat_rows(), resume=True)
    assert broken.weights() == straight.weights()
    assert broken.metrics() == straight.metrics()


async def test_all_parts_are_submitted_before_the_optimisers_step(run):
    clients = []

    class Seeing(Counting):
        def optim_step(self, params):
            self.requests.append("optim_step")
            return self.client.optim_step(params)

    await run.train(
        Chatter(steps=1, micro_batch_tokens=60),
        chat_rows(),
        client=lambda client: clients.append(Seeing(client)) or clients[0],
    )
    *parts, last = clients[0].requests
    assert last == "optim_step"
    assert len(parts) > 1
    assert all(count <= 60 for count in parts)
