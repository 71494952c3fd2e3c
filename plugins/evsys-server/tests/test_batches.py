"""Sample requests that a client wants computed together: they wait for each other, and have the bits of a batch in process."""

import asyncio
import hashlib
import json

import numpy as np
import pytest
from wire_client import FailedError, WireError, base_sampler, datum

from evsys import current_registry
from evsys.types import AdamParams, LoraSpec, ModelSpec, SamplingParams
from evsys_backend_mock.sampler import MockSampler
from evsys_server.limits import Limits
from evsys_server.service import Service
from evsys_server.wire.sampling import read_sample

PROMPTS = [list(text.encode()) for text in ("hello", "the cat", "a", "some other text", "hello", "one more")]
TOKENS = 9


def key(prompt, seed, n=1):
    named = json.dumps([prompt, n, TOKENS, seed], separators=(",", ":"))
    return hashlib.sha256(named.encode()).hexdigest()


def body(sampler, prompt, seed, n=1):
    return sampler.body(prompt, n, max_tokens=TOKENS, params={"seed": seed})


async def named(client, sampler, keys, id="one"):
    return await client.post("evsys/sample_batches", id=id, sampling_session_id=sampler.id, requests=keys)


async def trained_sampler(client, number=0):
    model = await client.new_model(lora_config={"rank": 4, "seed": 3})
    await model.forward_backward([datum("the cat sat on the mat")])
    await model.optim_step()
    return await model.sampler(number=number)


async def left_out(client, sampler, keys, id="one"):
    return await client.post("evsys/sample_batches", id=id, sampling_session_id=sampler.id, without=keys)


async def sent(client, sampler, order):
    """Requests of the prompts in some order: their promises."""
    return [
        await client.post("asample", **body(sampler, prompt, seed))
        for seed, prompt in [(place, PROMPTS[place]) for place in order]
    ]


async def drawn(client, sampler, order):
    """All prompts as one batch, whose requests come in some order."""
    promises = dict(zip(order, await sent(client, sampler, order), strict=True))
    return [await answer(client, promises[place]) for place in range(len(PROMPTS))]


async def answer(client, promise):
    sequence = read_sample(await client.fetch(promise)).sequences[0]
    return tuple(sequence.tokens), tuple(sequence.logprobs)


def in_process(tmp_path, places=tuple(range(6))):
    """What some of the prompts get, together and each by itself."""
    asked = [(place, PROMPTS[place]) for place in places]

    async def work():
        backend = current_registry().build("backend", "local")
        spec = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4))
        client = await backend.prepare(spec, tmp_path, 3)
        forward = client.forward_backward([datum("the cat sat on the mat")], "cross_entropy")
        adam = AdamParams(
            learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, grad_clip=0.0
        )
        step = client.optim_step(adam)
        await forward
        await step
        sampler = await client.sampling_client()
        ends = tuple(client.tokenizer.eos_token_ids)

        def params(seed):
            return SamplingParams(max_tokens=TOKENS, seed=seed, stop_token_ids=ends)

        together = await asyncio.gather(*(sampler.sample(prompt, params(seed)) for seed, prompt in asked))
        alone = [await sampler.sample(prompt, params(seed)) for seed, prompt in asked]
        await backend.teardown(client)
        return [
            [
                (tuple(one.sequences[0].tokens), tuple(np.float32(one.sequences[0].logprobs)))
                for one in answers
            ]
            for answers in (together, alone)
        ]

    return asyncio.run(work())


@pytest.mark.parametrize("order", [range(len(PROMPTS)), [5, 2, 4, 0, 1, 3]], ids=["in order", "out of order"])
def test_a_batch_has_the_bits_that_it_has_in_process(with_server, tmp_path, order):
    together, alone = in_process(tmp_path)
    assert together != alone  # else this shows nothing

    async def work(client):
        sampler = await trained_sampler(client)
        keys = [key(prompt, seed) for seed, prompt in enumerate(PROMPTS)]
        await named(client, sampler, keys)
        return await drawn(client, sampler, order)

    found = with_server(work, backend="local", deterministic=True)
    assert found == together


def test_requests_of_no_batch_are_drawn_alone(with_server, tmp_path):
    _, alone = in_process(tmp_path)

    async def work(client):
        sampler = await trained_sampler(client)
        return await drawn(client, sampler, range(len(PROMPTS)))

    assert with_server(work, backend="local", deterministic=True) == alone


def test_no_request_of_a_batch_is_answered_before_the_last_has_come(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        await named(client, sampler, [key(PROMPTS[0], 1), key(PROMPTS[1], 2)])
        first = await client.post("asample", **body(sampler, PROMPTS[0], 1))
        stranger = await client.post("asample", **body(sampler, PROMPTS[0], 7))
        await client.fetch(stranger)  # belongs to no batch, so it waits for nobody
        waiting = asyncio.ensure_future(client.fetch(first))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.fetch(await client.post("asample", **body(sampler, PROMPTS[1], 2)))
        await waiting

    with_server(work, limits=Limits(poll_seconds=0.02))


def test_a_batch_that_is_named_again_is_one(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        for _ in range(2):
            await named(client, sampler, [key(PROMPTS[0], 1)])
        await client.fetch(await client.post("asample", **body(sampler, PROMPTS[0], 1)))
        await named(
            client, sampler, [key(PROMPTS[0], 1), key(PROMPTS[0], 2)], id="then"
        )  # else there is no room

    with_server(work, limits=Limits(sampling=2))


def test_a_batch_that_stays_incomplete_fails_in_time_and_holds_up_nobody(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        await named(client, sampler, [key(PROMPTS[0], 1), key(PROMPTS[1], 2)])
        promise = await client.post("asample", **body(sampler, PROMPTS[0], 1))
        with pytest.raises(FailedError, match="1 of the 2 requests of this batch never came"):
            await client.fetch(promise)
        await client.fetch(await client.post("asample", **body(sampler, PROMPTS[1], 2)))

    with_server(work, limits=Limits(patience_seconds=0.1))


def test_a_batch_whose_requests_come_slowly_isnt_given_up(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        await named(client, sampler, [key(PROMPTS[0], seed) for seed in range(4)])
        promises = []
        for seed in range(4):
            promises.append(await client.post("asample", **body(sampler, PROMPTS[0], seed)))
            await asyncio.sleep(0.3)
        for promise in promises:
            await client.fetch(promise)

    with_server(work, limits=Limits(patience_seconds=0.8))


@pytest.mark.parametrize("when", ["before the others", "between", "last"])
def test_a_batch_goes_without_requests_that_wont_come_with_the_bits_of_the_others_in_process(
    with_server, tmp_path, when
):
    there = [0, 2, 3, 5]
    together, _ = in_process(tmp_path, there)
    assert together != [in_process(tmp_path)[0][place] for place in there]  # else this shows nothing

    async def work(client):
        sampler = await trained_sampler(client)
        keys = [key(prompt, seed) for seed, prompt in enumerate(PROMPTS)]
        await named(client, sampler, keys)
        first = {"before the others": 0, "between": 2, "last": 4}[when]
        promises = await sent(client, sampler, there[:first])
        await left_out(client, sampler, [keys[1]])
        await left_out(client, sampler, [keys[1], keys[4]])
        await left_out(client, sampler, [keys[4], keys[1]])  # said again, after its reply was lost
        promises += await sent(client, sampler, there[first:])
        return [await answer(client, promise) for promise in promises]

    assert with_server(work, backend="local", deterministic=True) == together


def test_one_of_equal_requests_that_wont_come_leaves_the_other_in_the_batch(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        keys = [key(PROMPTS[0], 1), key(PROMPTS[0], 1), key(PROMPTS[1], 2)]
        await named(client, sampler, keys)
        for _ in range(2):
            await left_out(client, sampler, keys[:1])
        promises = [await client.post("asample", **body(sampler, PROMPTS[0], 1))]
        waiting = asyncio.ensure_future(client.fetch(promises[0]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.fetch(await client.post("asample", **body(sampler, PROMPTS[1], 2)))
        await waiting

    with_server(work, limits=Limits(poll_seconds=0.02))


def test_a_batch_of_which_nothing_comes_leaves_its_room_to_others(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        keys = [key(PROMPTS[0], seed) for seed in range(4)]
        await named(client, sampler, keys)
        with pytest.raises(WireError, match="429"):
            await named(client, sampler, keys, id="then")
        await left_out(client, sampler, keys)
        await named(client, sampler, keys, id="then")
        await left_out(client, sampler, ["no such", keys[0]], id="one")  # it is over
        await left_out(client, sampler, keys, id="never named")
        with pytest.raises(WireError, match="without: expected a list of texts"):
            await left_out(client, sampler, "all")

    with_server(work, limits=Limits(sampling=4))


def test_a_session_that_ends_while_its_batch_is_drawn_is_told(with_server, monkeypatch):
    async def work(client):
        begun, drawing = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def draw(self, *_):
            begun.set()
            await drawing

        monkeypatch.setattr(MockSampler, "sample", draw)
        session = await client.new_session()
        sampler = await base_sampler(client, session=session)
        await named(client, sampler, [key(PROMPTS[0], 0)])
        promise = await client.post("asample", **body(sampler, PROMPTS[0], 0))
        await begun.wait()
        await client.post(f"sessions/{session}/finish", reason={"type": "success"})
        assert drawing.cancelled()
        with pytest.raises(FailedError, match="has ended"):
            await client.fetch(promise)

    with_server(work)


@pytest.mark.parametrize(("deterministic", "most"), [(True, 8), (False, 4)])
def test_a_server_that_computes_each_request_by_itself_takes_batches_as_large_as_it_has_room_for_answers(
    with_server, deterministic, most
):
    async def work(client):
        sampler = await base_sampler(client)
        assert (await client.post("client/config"))["sample_max_concurrent_requests"] == most
        with pytest.raises(WireError, match=f"of 1 to {most} requests, and this one of {most + 1}"):
            await named(client, sampler, [key(PROMPTS[0], seed) for seed in range(most + 1)])
        seeds = range(most)
        await named(client, sampler, [key(PROMPTS[0], seed) for seed in seeds])
        promises = [await client.post("asample", **body(sampler, PROMPTS[0], seed)) for seed in seeds]
        for promise in promises:
            await client.fetch(promise)

    with_server(work, deterministic=deterministic, limits=Limits(sampling=4, outstanding=8))


def test_who_gives_a_batch_up_and_names_it_anew_gets_the_new_one(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        keys = [key(PROMPTS[0], 1), key(PROMPTS[1], 2)]
        await named(client, sampler, keys, id="given up")
        await named(client, sampler, keys, id="anew")
        promises = [
            await client.post("asample", **body(sampler, prompt, seed))
            for seed, prompt in ((1, PROMPTS[0]), (2, PROMPTS[1]))
        ]
        for promise in promises:
            await client.fetch(promise)

    with_server(work)


def test_a_session_that_ends_takes_its_batches_along(with_server):
    async def work(client):
        session = await client.new_session()
        sampler = await base_sampler(client, session=session)
        keys = [key(PROMPTS[0], seed) for seed in range(4)]
        await named(client, sampler, keys)
        promise = await client.post("asample", **body(sampler, PROMPTS[0], 0))
        await client.post(f"sessions/{session}/finish", reason={"type": "success"})
        with pytest.raises(FailedError, match="has ended"):
            await client.fetch(promise)
        await named(client, await base_sampler(client), keys)  # there is room for another four

    with_server(work, limits=Limits(sampling=4))


@pytest.mark.parametrize(
    ("keys", "status"),
    [([], 400), (["a"] * 5, 400), ("a", 400), ([1], 400), (["a" * 5000], 400), (["a", "b"], 429)],
)
def test_a_batch_that_cant_be_is_refused(with_server, keys, status):
    async def work(client):
        sampler = await base_sampler(client)
        await named(client, sampler, ["x", "y", "z"], id="before")
        with pytest.raises(WireError) as refused:
            await named(client, sampler, keys, id="then")
        return refused.value.status

    assert with_server(work, limits=Limits(sampling=4)) == status


def test_requests_that_a_batch_waits_for_are_let_in_however_busy_the_server_is(with_server, monkeypatch):
    monkeypatch.setattr(Service, "working", Limits().sampling)

    async def work(client):
        sampler = await base_sampler(client)
        keys = [key(PROMPTS[0], 0), key(PROMPTS[0], 1)]
        await named(client, sampler, keys)
        first = await client.post("asample", **body(sampler, PROMPTS[0], 0))
        with pytest.raises(WireError, match="429"):
            await client.post("asample", **body(sampler, PROMPTS[0], 9))
        second = await client.post("asample", **body(sampler, PROMPTS[0], 1))
        for promise in (first, second):
            await client.fetch(promise)

    with_server(work)


@pytest.mark.parametrize("raised", [RuntimeError("no card"), SystemExit(3), asyncio.CancelledError()])
def test_a_backend_that_fails_at_a_batch_ends_all_its_requests(with_server, monkeypatch, raised):
    """Also where what it raises isn't an ordinary error: nobody would be told of it otherwise."""

    async def draw(self, *_):
        raise raised

    async def work(client):
        sampler = await base_sampler(client)
        keys = [key(PROMPTS[0], 0), key(PROMPTS[0], 1)]
        await named(client, sampler, keys)
        monkeypatch.setattr(MockSampler, "sample", draw)
        promises = [await client.post("asample", **body(sampler, PROMPTS[0], seed)) for seed in (0, 1, 2)]
        for promise in promises:  # the last one is of no batch
            with pytest.raises(FailedError, match="no card|SystemExit: 3|cancelled its own work"):
                await asyncio.wait_for(client.fetch(promise), 20)

    with_server(work)
