"""The clients over the engine: built-in losses, sampling, cancellation, teardown."""

from __future__ import annotations

import asyncio
import functools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from evsys.errors import BackendError
from evsys.types import AdamParams, Checkpoint, Datum, LoraSpec, ModelSpec, SamplingParams
from evsys_backend_local import LocalBackend
from evsys_backend_local.client import SEPARABLE, LocalTrainingClient
from evsys_backend_local.engine.threads import DaemonExecutor
from evsys_runtime.losses import BUILTIN_LOSSES, compute_loss


class Renderer:
    """Has a tokenizer whose `decode` a test may watch: with a stop string it is called after each token."""

    def __init__(self):
        self.tokenizer = SimpleNamespace(decode=lambda tokens: "")


TINY = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4, alpha=32.0))
ADAM = AdamParams(learning_rate=1e-2)


@pytest.fixture
def make_client(make_engine, randomise):
    def make(seed=0, max_rows=16):
        engine = make_engine(max_rows=max_rows)
        model = randomise(engine.create_adapter(rank=3))
        return LocalTrainingClient(engine, model, Renderer(), DaemonExecutor(1, "test"), seed=seed)

    return make


def policy_data(kind, count=6):
    """Sequences with a sampler's logprobs; `kind` says which loss inputs are there, and what is 0 in them."""
    rng = np.random.default_rng(2)
    data = []
    for index in range(count):
        n = int(rng.integers(6, 13))
        advantages = np.full(n, 1.0 if index % 2 else -0.5)
        weights = (np.arange(n) >= 3).astype(np.float64)
        if kind in {"zero advantages", "weights and zero advantages"}:
            advantages[::2] = 0.0
        if kind == "no signal":
            advantages[:] = 0.0
        inputs = {
            "target_tokens": rng.integers(0, 17, n),
            "logprobs": rng.normal(-2.5, 0.3, n),
            "advantages": advantages,
        }
        if "weights" in kind:
            inputs["weights"] = weights
        data.append(Datum(tokens=rng.integers(0, 17, n), loss_inputs=inputs))
    return data


async def outcome(client, data, loss):
    """The result of one pass with its gradient, and the logprobs of a bare forward."""
    before = await client.forward(data)
    client._model.grad.flat[...] = 0
    result = await client.forward_backward(data, loss)
    return result, client._model.grad.flat.copy(), before.logprobs


MASKED = ["weights", "weights and zero advantages"]
KINDS = [*MASKED, "plain", "zero advantages", "no signal"]
CASES = [(name, kind) for name in SEPARABLE for kind in (MASKED if name == "cross_entropy" else KINDS)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_built_in_loss_is_the_reference_and_has_the_gradient_of_the_callable(make_client, name, kind):
    client, data = make_client(), policy_data(kind)
    named, gradient, logprobs = asyncio.run(outcome(client, data, name))
    called, wanted, _ = asyncio.run(outcome(client, data, functools.partial(BUILTIN_LOSSES[name])))
    reference = compute_loss(name, data, logprobs)
    for result in (named, called):
        assert result.loss == pytest.approx(reference.loss, rel=1e-9)
        assert result.metrics == pytest.approx(reference.metrics, rel=1e-9)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-8, atol=1e-10)
    if kind != "no signal" or name == "dro":
        assert np.abs(gradient).max() > 1e-3


def test_means_and_maxima_are_those_of_the_whole_batch_when_it_is_split(make_client):
    client = make_client()

    async def go():
        data = policy_data("plain")
        own = (await client.forward(data)).logprobs
        data = [
            Datum(tokens=datum.tokens, loss_inputs={**datum.loss_inputs, "logprobs": lp})
            for datum, lp in zip(data, own, strict=True)
        ]
        return data, await client.forward_backward(data, "ppo")

    data, result = asyncio.run(go())
    assert len(client._engine.batch([_plain(datum) for datum in data]).parts) > 2
    assert result.metrics["ratio_mean"] == pytest.approx(1.0)
    assert result.metrics["ratio_max"] == pytest.approx(1.0)
    assert result.metrics["kl_k1"] == pytest.approx(0.0, abs=1e-9)


def _plain(datum):
    from evsys_backend_local.engine.batch import Example

    return Example(tokens=datum.tokens, targets=datum.loss_inputs["target_tokens"])


def test_logprobs_are_nan_exactly_where_the_loss_has_no_term(make_client):
    client, data = make_client(), policy_data("weights")
    result, _, everywhere = asyncio.run(outcome(client, data, "cross_entropy"))
    for datum, own, full in zip(data, result.logprobs, everywhere, strict=True):
        np.testing.assert_array_equal(np.isnan(own), datum.loss_inputs["weights"] == 0)
        trained = datum.loss_inputs["weights"] != 0
        np.testing.assert_allclose(own[trained], full[trained], rtol=1e-9)
        assert np.isfinite(full).all()


def test_a_step_may_follow_a_batch_without_signal(make_client):
    client = make_client()

    async def go():
        result = await client.forward_backward(policy_data("no signal"), "ppo")
        return result, await client.optim_step(ADAM)

    result, step = asyncio.run(go())
    assert (result.loss, step.grad_norm) == (0.0, 0.0)


def draw(client, times=2):
    async def go():
        sampler = await client.sampling_client()
        params = SamplingParams(max_tokens=12, temperature=1.0)
        return [(await sampler.sample([1, 2], params, n=2)).sequences[1].tokens for _ in range(times)]

    return asyncio.run(go())


def test_samples_without_a_seed_follow_from_the_runs_seed_and_are_new_each_time(make_client):
    first, again, other = draw(make_client(seed=1)), draw(make_client(seed=1)), draw(make_client(seed=2))
    assert first == again
    assert first != other
    assert first[0] != first[1]


class Held:
    """Sampling that stops after the third token until `go` is set; `lengths` tells how far it got."""

    def __init__(self, client):
        self.started, self.go, self.lengths = threading.Event(), threading.Event(), []
        client.renderer.tokenizer.decode = self._decode

    def _decode(self, tokens):
        self.lengths.append(len(tokens))
        if len(tokens) == 3:
            self.started.set()
            assert self.go.wait(20)
        return ""

    async def sampling(self, client, count=1):
        sampler = await client.sampling_client()
        params = SamplingParams(max_tokens=30, stop=("never",))
        tasks = [asyncio.create_task(sampler.sample([1, 2], params)) for _ in range(count)]
        assert await asyncio.to_thread(self.started.wait, 20)
        return tasks


def test_sampling_that_nobody_waits_for_ends_and_makes_room(make_client):
    client = make_client()

    async def go():
        held = Held(client)
        (task,) = await held.sampling(client)
        task.cancel()
        await asyncio.wait([task])
        held.go.set()
        await client.forward(policy_data("plain"))  # waits for its turn behind the sampling
        return task, held.lengths

    task, lengths = asyncio.run(go())
    assert task.cancelled()
    assert lengths == [1, 2, 3]


def test_who_still_waits_gets_an_answer_when_others_gave_up(make_client):
    client = make_client()

    async def go():
        held = Held(client)
        gone, stays = await held.sampling(client, count=2)
        gone.cancel()
        await asyncio.wait([gone])
        held.go.set()
        return len((await stays).sequences[0].tokens)

    assert asyncio.run(go()) == 30


def test_a_call_that_was_cancelled_before_it_started_is_not_computed(make_client, monkeypatch):
    client, asked = make_client(), []
    monkeypatch.setattr(client._engine, "sample", lambda *args, **settings: asked.append(args))

    async def go():
        sampler = await client.sampling_client()
        task = asyncio.create_task(sampler.sample([1], SamplingParams(max_tokens=2)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await client.forward(policy_data("plain"))

    asyncio.run(go())
    assert not any(requests for _, requests in asked)


def test_teardown_ends_what_computes_and_tells_who_waits(make_client, caplog):
    client = make_client()
    backend = LocalBackend()
    backend._executor = client._executor

    async def go():
        held = Held(client)
        (sampling,) = await held.sampling(client)
        training = client.forward_backward(policy_data("plain"), "ppo")
        dropped = client.optim_step(ADAM)
        teardown = asyncio.create_task(backend.teardown(client))
        await asyncio.sleep(0)
        held.go.set()
        await teardown
        for waiting in (sampling, training):
            with pytest.raises(BackendError, match="torn down"):
                await waiting
        del dropped
        return held.lengths

    assert asyncio.run(go()) == [1, 2, 3]
    assert not caplog.records
    assert not client._model.grad.flat.any()


def test_what_cannot_be_computed_is_told_as_the_backends_error(make_client):
    client = make_client()

    async def go():
        sampler = await client.sampling_client()
        with pytest.raises(BackendError, match="outside 0..16"):
            await sampler.compute_logprobs([1, 99])
        with pytest.raises(BackendError, match="seed must be at least 0"):
            await sampler.sample([1], SamplingParams(max_tokens=2, seed=-1))
        inputs = {"target_tokens": np.array([2, -100]), "weights": np.array([1.0, 0.0])}
        masked = Datum(tokens=[1, 2], loss_inputs=inputs)
        with pytest.raises(BackendError, match="targets hold ids outside 0..16"):
            await client.forward_backward([masked], "cross_entropy")
        client._model.params.flat[...] = np.nan
        diverged = await client.sampling_client()
        with pytest.raises(BackendError, match="diverged.*lower the learning rate"):
            await diverged.sample([1], SamplingParams(max_tokens=2))

    asyncio.run(go())


def test_clients_of_a_backend_that_was_torn_down_say_so(make_client):
    client = make_client()
    backend = LocalBackend()
    backend._executor = client._executor

    async def go():
        sampler = await client.sampling_client()
        await backend.teardown(client)
        await backend.teardown(client)
        for call in (
            lambda: sampler.sample([1], SamplingParams(max_tokens=2)),
            lambda: sampler.compute_logprobs([1, 2]),
            client.sampling_client,
        ):
            with pytest.raises(BackendError, match="torn down"):
                await call()
        with pytest.raises(BackendError, match="torn down"):
            client.forward(policy_data("plain"))

    asyncio.run(go())


@pytest.mark.parametrize(
    ("step", "with_optimizer"),
    [(0, True), (0, False), (5, True)],
    ids=["another run's state", "another run's weights", "this run's step"],
)
def test_the_version_counts_the_steps_of_this_run(tmp_path, step, with_optimizer):
    data = [
        Datum(
            tokens=np.arange(10, 20),
            loss_inputs={"target_tokens": np.arange(11, 21), "weights": np.ones(10)},
        )
    ]

    async def go():
        backend = LocalBackend()
        client = await backend.prepare(TINY, tmp_path, 0)
        for _ in range(2):
            client.forward_backward(data, "cross_entropy")
            await client.optim_step(ADAM)
        assert (await client.sampling_client()).version == 2
        await client.save_state(tmp_path / "saved")
        await backend.teardown(client)
        restore = Checkpoint(step=step, directory=tmp_path / "saved", with_optimizer=with_optimizer)
        client = await backend.prepare(TINY, tmp_path, 0, restore)
        versions = [(await client.sampling_client()).version]
        client.forward_backward(data, "cross_entropy")
        await client.optim_step(ADAM)
        versions.append((await client.sampling_client()).version)
        await backend.teardown(client)
        return versions

    assert asyncio.run(go()) == [step, step + 1]


def test_a_closed_snapshot_keeps_no_prompt(tmp_path):
    async def go(params):
        backend = LocalBackend(**params)
        client = await backend.prepare(TINY, tmp_path, 0)
        sampler = await client.sampling_client()
        first = await sampler.sample(range(150), SamplingParams(max_tokens=4, seed=1))
        again = await sampler.sample(range(150), SamplingParams(max_tokens=4, seed=1))
        held = [client._engine.prefixes.nbytes]
        await sampler.close()
        await sampler.close()
        held.append(client._engine.prefixes.nbytes)
        await backend.teardown(client)
        return [result.sequences for result in (first, again)], held

    (first, again), (open_, closed) = asyncio.run(go({}))
    assert open_ > 0
    assert closed == 0
    nothing_kept, held = asyncio.run(go({"prefix_cache_mb": 0}))
    assert held == [0, 0]
    assert first == again == nothing_kept[0] == nothing_kept[1]


def test_digests_of_snapshots_are_equal_exactly_where_base_and_adapter_are(make_engine, randomise):
    def digest(base: int, adapter: int) -> str:
        engine = make_engine(seed=base)
        model = randomise(engine.create_adapter(rank=3), seed=adapter)
        client = LocalTrainingClient(engine, model, Renderer(), DaemonExecutor(1, "test"), seed=0)
        return asyncio.run(client.sampling_client()).digest

    first = digest(0, 1)
    assert digest(0, 1) == first
    assert len({first, digest(0, 2), digest(3, 1)}) == 3


def test_a_closed_snapshot_tells_no_digest(make_client):
    async def closed():
        snapshot = await make_client().sampling_client()
        await snapshot.close()
        return snapshot

    with pytest.raises(BackendError, match="closed"):
        asyncio.run(closed()).digest  # noqa: B018 - asking is what is tested
