import asyncio
import math

import pytest
from wire_client import FailedError, Sampler, WireError, base_sampler, datum

from evsys.errors import BackendError
from evsys_backend_mock.client import MockTrainingClient
from evsys_server.engine import Engine
from evsys_server.limits import Limits

PROMPT = list(b"hello")


def test_a_base_model_is_sampled(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        found = await sampler.sample(PROMPT, 3, max_tokens=5)
        return found, await client.call("GET", f"samplers/{sampler.id}")

    found, about = with_server(work)
    assert len(found.sequences) == 3
    assert all(1 <= len(s.tokens) <= 5 and len(s.logprobs) == len(s.tokens) for s in found.sequences)
    assert (about["base_model"], about["model_path"]) == ("evsys/tiny", None)


def test_a_promise_names_each_sample(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        promise = await client.post("asample", **sampler.body(PROMPT, 3))
        await client.fetch(promise)
        return promise

    promise = with_server(work)
    assert len(set(promise["sample_sequence_ids"])) == 3


def test_logprobs_of_the_prompt_have_its_length_and_begin_with_none(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        whole = await sampler.sample(PROMPT, max_tokens=1, prompt_logprobs=True)
        last = await sampler.sample(PROMPT, max_tokens=1, prompt_logprobs=True, prompt_logprobs_last_n=2)
        return whole.prompt_logprobs, last.prompt_logprobs

    whole, last = with_server(work)
    assert len(whole) == len(PROMPT)
    assert whole[0] is None
    assert all(math.isfinite(x) for x in whole[1:])
    assert last == [None, None, None, *whole[-2:]]


def test_the_likeliest_tokens_of_sampled_positions_are_told(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        return await sampler.sample(PROMPT, topk_sample_logprobs=3, params={"temperature": 0.0})

    (sequence,) = with_server(work).sequences
    for token, logprob, top in zip(sequence.tokens, sequence.logprobs, sequence.top_logprobs, strict=True):
        assert len(top) == 3
        assert top[token] == logprob == max(top.values())


def test_the_likeliest_tokens_of_the_prompts_positions_are_told(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        return await sampler.sample(PROMPT, max_tokens=1, prompt_logprobs=True, topk_prompt_logprobs=3)

    told = with_server(work)
    assert told.top_prompt_logprobs[0] is None
    for token, own, row in zip(
        PROMPT[1:], told.prompt_logprobs[1:], told.top_prompt_logprobs[1:], strict=True
    ):
        assert len(row) == 3
        assert row.get(token, own) == own
        assert own <= max(row.values())


def test_a_seed_decides_and_a_request_without_one_has_its_own(with_server):
    async def work(client):
        one, other = await base_sampler(client), await base_sampler(client)
        seeded = [await one.sample(PROMPT, 2, params={"seed": 7}) for _ in range(2)]
        bodies = [one.body(PROMPT, max_tokens=30) for _ in range(2)]
        free = [await client.promised("asample", **body) for body in bodies]
        other.next_seq = 2
        again = [await client.promised("asample", **other.body(PROMPT, max_tokens=30)) for _ in range(2)]
        return seeded, free, again

    seeded, free, again = with_server(work)
    assert seeded[0] == seeded[1]
    assert free[0] != free[1]
    assert free == again  # by the place in the session


def test_a_seed_below_zero_is_a_seed(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        return [await sampler.sample(PROMPT, 2, params={"seed": seed}) for seed in (-1, 2**63 - 1, -2)]

    below, same, other = with_server(work)
    assert below == same
    assert below != other


def test_a_request_that_is_sent_again_is_answered_once(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        body = sampler.body(PROMPT)
        first, again = await client.post("asample", **body), await client.post("asample", **body)
        return first, again, await client.fetch(first), await client.fetch(again)

    first, again, one, other = with_server(work)
    assert (first, one) == (again, other)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (None, "length"),
        ([], "length"),
        ("lo", "stop"),
        (["x", "lo"], "stop"),
        ([111], "stop"),
        ([1.5], None),
        (["a", 1], None),
    ],
)
def test_what_ends_a_sample_is_the_clients_word(with_server, stop, reason):
    async def work(client):
        model = await client.new_model(lora_config={"rank": 16, "seed": 1})
        for _ in range(20):
            await model.forward_backward([datum("hello\n", weights=[1] * 5)])
            await model.optim_step()
        sampler = await model.sampler()
        params = {"temperature": 0.0, "stop": stop}
        return (await sampler.sample(list(b"hel"), max_tokens=2, params=params)).sequences[0]

    if reason is None:
        with pytest.raises(WireError, match="stop: expected"):
            with_server(work)
        return
    sequence = with_server(work)
    assert bytes(sequence.tokens) == b"lo"
    assert sequence.finish_reason == reason


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_alt_tokens_k": 2}, "not served here"),
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": 10**6}, "at most"),
        ({"prompt": {"chunks": [{"type": "image", "data": ""}]}}, "only encoded_text"),
        ({"prompt": {"chunks": [{"type": "encoded_text", "tokens": ["a"]}]}}, "whole numbers"),
        ({"sampling_params": {"temperature": "hot"}}, "temperature: expected a number"),
        ({"sampling_session_id": "nobody:sample:0"}, "there is no sampler"),
    ],
)
def test_what_cant_be_sampled_is_refused_at_once(with_server, fields, message):
    async def work(client):
        sampler = await base_sampler(client)
        await client.post("asample", **{**sampler.body(PROMPT), **fields})

    with pytest.raises(WireError, match=message):
        with_server(work)


def test_a_failure_of_the_backend_is_the_answer(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        await sampler.sample([10**6])

    with pytest.raises(Exception, match="outside the vocabulary"):
        with_server(work)


def test_more_than_may_be_sampled_at_once_are_sent_away(with_server):
    async def work(client):
        sampler = await base_sampler(client)

        async def send():
            async with client.session.post(f"{client.url}/asample", json=sampler.body(PROMPT)) as response:
                return response.status, response.headers.get("Retry-After")

        return await asyncio.gather(*(send() for _ in range(8)))

    answers = with_server(work, limits=Limits(outstanding=4))
    assert sorted(answers) == [(200, None)] * 4 + [(429, "1")] * 4


def test_weights_that_were_saved_are_sampled_beside_those_of_now(with_server):
    async def work(client):
        model = await client.new_model()
        before = await model.sampler()
        for _ in range(5):
            await model.forward_backward([datum()])
            await model.optim_step()
        after = await model.sampler(number=1)
        base = await base_sampler(client)
        options = {"max_tokens": 1, "prompt_logprobs": True}
        prompt = list(b"hello world")
        return [(await s.sample(prompt, **options)).prompt_logprobs for s in (base, before, after)]

    base, before, after = with_server(work)
    assert before == base
    assert sum(after[1:]) > sum(before[1:])


def test_snapshots_that_left_memory_come_back_from_disk(with_server):
    async def work(client):
        model = await client.new_model()
        samplers, first = [], []
        options = {"max_tokens": 3, "prompt_logprobs": True, "params": {"seed": 1}}
        for number in range(5):
            await model.forward_backward([datum()])
            await model.optim_step()
            samplers.append(await model.sampler(number=number))
            first.append(await samplers[-1].sample(PROMPT, **options))
        return first, [await sampler.sample(PROMPT, **options) for sampler in samplers]

    first, again = with_server(work, limits=Limits(live_samplers=2))
    assert first == again
    assert len({sample.prompt_logprobs[1] for sample in first}) == 5


def test_a_snapshot_that_cant_be_sampled_from_once_it_is_back_leaves_no_model_behind(
    with_server, monkeypatch
):
    there = []
    prepare, release = Engine.prepare, Engine.release

    async def prepared(self, *args, **kwargs):
        found = await prepare(self, *args, **kwargs)
        there.append(found)
        return found

    async def released(self, one):
        there.remove(one)
        await release(self, one)

    monkeypatch.setattr(Engine, "prepare", prepared)
    monkeypatch.setattr(Engine, "release", released)

    async def work(client):
        model = await client.new_model()
        path = (await model.call("save_weights_for_sampler", path="s"))["path"]
        session = await client.new_session()
        await client.post(f"sessions/{model.session}/finish", reason={"type": "success"})
        before = len(there)

        async def broken(_):
            raise BackendError("no card")

        made = await client.post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0, model_path=path
        )
        sampler = Sampler(client, made["sampling_session_id"])
        with monkeypatch.context() as patch:
            patch.setattr(MockTrainingClient, "sampling_client", broken)
            with pytest.raises(FailedError, match="no card"):
                await sampler.sample(PROMPT)
        assert len(there) == before
        return await sampler.sample(PROMPT)

    assert with_server(work)


def test_many_samples_of_few_live_snapshots_at_once_all_come(with_server):
    async def work(client):
        model = await client.new_model()
        samplers = [await model.sampler(number=number) for number in range(4)]
        calls = [sampler.sample(PROMPT) for _ in range(5) for sampler in samplers]
        return await asyncio.gather(*calls)

    assert len(with_server(work, limits=Limits(live_samplers=1))) == 20


def test_samples_of_a_deterministic_server_dont_depend_on_company(with_server):
    async def work(client):
        sampler = await base_sampler(client)
        bodies = [sampler.body(PROMPT, 2, max_tokens=8, params={"seed": n}) for n in range(6)]
        together = await asyncio.gather(*(client.promised("asample", **body) for body in bodies))
        for body in bodies:
            body["seq_id"] += 100
        return together, [await client.promised("asample", **body) for body in bodies]

    together, alone = with_server(work, deterministic=True, backend="local")
    assert together == alone


def test_unnamed_snapshots_that_nobody_uses_are_let_go_and_those_in_use_stay(with_server, tmp_path):
    async def work(client):
        model = await client.new_model()
        reference = await model.sampler(number=0)
        before = await reference.sample(PROMPT, params={"seed": 1})
        samplers = []
        for number in range(1, 8):
            await model.forward_backward([datum()])
            await model.optim_step()
            samplers.append(await model.sampler(number=number))
            await reference.sample(PROMPT)
        with pytest.raises(WireError, match="it had no name"):
            await samplers[0].sample(PROMPT)
        await samplers[-1].sample(PROMPT)
        kept = len(list((tmp_path / "server").rglob("checkpoint.json")))
        return before, await reference.sample(PROMPT, params={"seed": 1}), kept

    before, after, kept = with_server(work, limits=Limits(unnamed_samplers=3, live_samplers=1))
    assert before == after
    assert kept == 3


def test_a_checkpoint_that_was_deleted_isnt_sampled_any_more(with_server):
    async def work(client):
        model = await client.new_model()
        path = (await model.call("save_weights_for_sampler", path="s"))["path"]
        made = await client.post(
            "create_sampling_session", session_id=model.session, sampling_session_seq_id=0, model_path=path
        )
        sampler = Sampler(client, made["sampling_session_id"])
        await sampler.sample(PROMPT)
        await client.call("DELETE", f"training_runs/{model.id}/checkpoints/sampler_weights/s")
        await sampler.sample(PROMPT)

    with pytest.raises(FailedError, match="may have expired or been deleted"):
        with_server(work)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topk_sample_logprobs": 21}, "topk_sample_logprobs: at most 20, got 21"),
        ({"topk_prompt_logprobs": 10**7}, "topk_prompt_logprobs: at most 20"),
        ({"params": {"top_k": 10**30}}, "top_k: expected a whole number"),
        ({"params": {"stop": [10**30]}}, "stop: tokens must be"),
        ({"params": {"seed": 10**40}}, "seed: expected a whole number"),
        ({"params": {"temperature": 10**400}}, "temperature: expected a number"),
        ({"prompt": {"chunks": [{"tokens": [10**30]}]}}, "prompt: tokens must be whole numbers"),
        ({"prompt": {"chunks": [{"tokens": [1, -1]}]}}, "prompt: tokens must be whole numbers"),
        ({"prompt": {"chunks": [{"tokens": [True]}]}}, "prompt: tokens must be whole numbers"),
    ],
)
def test_numbers_that_cant_be_are_the_clients_fault(with_server, fields, message):
    async def work(client):
        sampler = await base_sampler(client)
        body = sampler.body(PROMPT, **{key: value for key, value in fields.items() if key == "params"})
        with pytest.raises(WireError, match=message) as refused:
            await client.post("asample", **{**body, **{k: v for k, v in fields.items() if k != "params"}})
        await sampler.sample(PROMPT)
        return refused.value.status, refused.value.body["category"]

    assert with_server(work) == (400, "user")


def test_twenty_of_the_likeliest_tokens_may_be_asked_for(with_server):
    async def work(client):
        return await (await base_sampler(client)).sample(PROMPT, topk_sample_logprobs=20)

    (sequence,) = with_server(work).sequences
    assert {len(top) for top in sequence.top_logprobs} == {20}


def test_inflight_samplers_follow_the_model_and_snapshots_dont(with_server):
    async def work(client):
        model = await client.new_model()

        async def train():
            for _ in range(3):
                await model.forward_backward([datum("hello world")])
                await model.optim_step()

        async def scored(sampler):
            found = await sampler.sample(PROMPT, max_tokens=1, prompt_logprobs=True)
            return found.prompt_logprobs[1:]

        snapshot = await model.sampler(number=0)
        first = await model.sampler(number=1, kind="inflight")
        before = [await scored(snapshot), await scored(first)]
        await train()
        unpublished = await scored(first)
        second = await model.sampler(number=2, kind="inflight")
        return before, unpublished, [await scored(one) for one in (snapshot, first, second)]

    before, unpublished, after = with_server(work, backend="local")
    assert before[0] == before[1] == unpublished == after[0]
    assert after[1] == after[2] != after[0]


def test_many_inflight_samplers_are_one_snapshot_and_outlive_the_unnamed_ones(with_server, tmp_path):
    async def work(client):
        model = await client.new_model()
        first = await model.sampler(number=0, kind="inflight")
        for number in range(1, 5):
            await model.sampler(number=number, kind="inflight")
            await model.sampler(number=10 + number)
        return await first.sample(PROMPT), len(list((tmp_path / "server").rglob("checkpoint.json")))

    found, kept = with_server(work, limits=Limits(unnamed_samplers=2))
    assert found.sequences
    assert kept == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"kind": "live"}, "snapshot and inflight are"), ({"kind": "inflight", "path": "a"}, "have no name")],
)
def test_other_kinds_of_samplers_are_refused(with_server, fields, message):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError, match=message):
            await model.sampler(**fields)
        await model.sampler(number=1)  # the order goes on

    with_server(work)
