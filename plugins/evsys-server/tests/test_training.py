import asyncio

import attrs
import numpy as np
import pytest
from wire_client import FailedError, WireError, datum

from evsys.errors import BackendError
from evsys_backend_mock import MockBackend
from evsys_backend_mock.client import MockTrainingClient
from evsys_server.limits import Limits
from evsys_server.wire.fields import entries, integer, integers, length_delimited, text


def test_a_model_learns(with_server):
    async def work(client):
        model = await client.new_model()
        losses = []
        for _ in range(5):
            output = await model.forward_backward([datum()] * 2)
            losses.append(output.metrics["loss:sum"])
            step = await model.optim_step()
            assert step["metrics"]["grad_norm"] > 0
        return losses, await client.post("get_info", model_id=model.id)

    losses, info = with_server(work)
    assert losses[-1] < losses[0] / 2
    assert (info["model_data"]["model_name"], info["is_lora"], info["lora_rank"]) == ("evsys/tiny", True, 4)


def test_every_loss_of_the_wire_is_served(with_server):
    size = len("hello world") - 1
    rl = {
        "logprobs": np.full(size, -5.0, np.float32),
        "advantages": np.linspace(-1, 1, size, dtype=np.float32),
    }

    async def work(client):
        model = await client.new_model()
        found = {"cross_entropy": await model.forward_backward([datum()])}
        for name, config in (
            ("importance_sampling", {}),
            ("ppo", {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}),
            ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
            ("gspo", {}),
            ("dro", {"beta": 0.1}),
        ):
            found[name] = await model.forward_backward([datum(**rl)], name, loss_params=config)
        return found

    found = with_server(work)
    assert all(np.isfinite(output.metrics["loss:sum"]) for output in found.values())
    assert all(name.count(":") == 1 for output in found.values() for name in output.metrics)
    assert all(output.logprobs[0].shape == (size,) for output in found.values())
    assert found["ppo"].metrics["loss:sum"] != found["importance_sampling"].metrics["loss:sum"]


def test_a_loss_that_the_backend_doesnt_tell_is_no_loss_of_0(with_server, monkeypatch):
    real = MockTrainingClient.forward_backward

    def untold(self, *args, **kwargs):
        async def told():
            return attrs.evolve(await pending, loss=None)

        pending = real(self, *args, **kwargs)
        return told()

    async def work(client):
        model = await client.new_model()
        monkeypatch.setattr(MockTrainingClient, "forward_backward", untold)
        with pytest.raises(FailedError, match="reported no value of the loss 'cross_entropy'"):
            await model.forward_backward([datum()])

    with_server(work)


def test_a_forward_pass_adds_no_gradient(with_server):
    async def work(client):
        model = await client.new_model()
        forward = await model.forward_backward([datum()], forward_only=True)
        with pytest.raises(FailedError, match="without a gradient"):
            await model.optim_step()
        backward = await model.forward_backward([datum()])
        return forward, backward

    forward, backward = with_server(work)
    assert forward.metrics == backward.metrics
    assert np.array_equal(forward.logprobs[0], backward.logprobs[0])


def test_examples_without_weights_count_whole(with_server):
    async def work(client):
        model = await client.new_model()
        whole = await model.forward_backward([datum()])
        inputs = {name: array for name, array in datum().loss_inputs.items() if name != "weights"}
        bare = type(datum())(tokens=datum().tokens, loss_inputs=inputs)
        return whole.metrics, (await model.forward_backward([bare], forward_only=True)).metrics

    whole, bare = with_server(work)
    assert whole == bare


@pytest.mark.parametrize(
    ("loss", "config", "message"),
    [
        ("stable_reinforce", {}, "there is no loss 'stable_reinforce' here; served: cross_entropy"),
        ("ppo", {"epsilon": 0.1}, "ppo has no setting 'epsilon'"),
        ("dro", {"beta": "high"}, "beta must be a number"),
        ("importance_sampling", {}, "needs the loss input 'advantages'"),
    ],
)
def test_a_loss_that_cant_be_is_the_requests_failure_and_the_order_goes_on(
    with_server, loss, config, message
):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError, match=message) as failed:
            await model.forward_backward([datum()], loss, loss_params=config)
        await model.forward_backward([datum()])
        await model.optim_step()
        return failed.value.category

    assert with_server(work) == "user"


def test_examples_that_cant_be_are_refused_by_their_place(with_server):
    async def work(client):
        model = await client.new_model()
        messages = []
        outside = datum()
        outside.tokens[0] = 10**6
        for data in ([], [datum(), outside]):
            with pytest.raises(FailedError) as failed:
                await model.forward_backward(data)
            messages.append(str(failed.value))
        return messages

    empty, outside = with_server(work)
    assert "no examples" in empty
    assert "datum 1: token 1000000 is outside the vocabulary" in outside


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("load_weights", {}),
        ("load_weights", {"path": "tinker://x", "optimizer": "yes"}),
        ("optim_step", {"adam_params": {"learning_rate": 10**400}}),
        ("optim_step", {"adam_params": {"learning_rate": "fast"}}),
        ("optim_step", {"adam_params": 5}),
        ("save_weights", {"path": 5}),
        ("save_weights", {"path": "a", "ttl_seconds": 10**400}),
        ("save_weights_for_sampler", {}),
    ],
)
def test_whatever_is_wrong_with_a_request_it_has_had_its_turn(with_server, path, body):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError) as failed:
            await model.call(path, **body)
        async with asyncio.timeout(10):
            await model.forward_backward([datum()])
        return failed.value.category

    assert with_server(work) == "user"


def test_a_body_that_is_refused_unread_has_had_its_turn_however_it_comes_in_pieces(with_server):
    async def work(client):
        model = await client.new_model()
        body = model.request([datum("x" * 3000)])

        async def pieces():
            for piece in (body[:3], body[3:20], body[20:]):
                yield piece
                await asyncio.sleep(0.01)  # each in a packet of its own

        async with client.session.post(f"{client.url}/forward_backward", data=pieces()) as response:
            status = response.status
        async with asyncio.timeout(10):
            await model.forward_backward([datum()])
        return status

    assert with_server(work, limits=Limits(body_bytes=4000)) == 413


@pytest.mark.parametrize(
    "params",
    [
        {"learning_rate": -1},
        {"learning_rate": 1e308},
        {"beta1": 5},
        {"beta1": 1.0},
        {"beta2": -0.1},
        {"eps": -1},
        {"eps": 0},
        {"weight_decay": -1},
        {"weight_decay": 1e308},
    ],
)
def test_optimiser_settings_that_cant_be_meant_are_refused_and_change_nothing(with_server, params):
    async def work(client):
        model = await client.new_model()
        before = await model.forward_backward([datum()])
        (name,) = params
        with pytest.raises(FailedError, match=f"{name}: must be ") as failed:
            await model.optim_step(**params)
        after = await model.forward_backward([datum()], forward_only=True)
        return failed.value.category, before.metrics, after.metrics

    category, before, after = with_server(work)
    assert category == "user"
    assert after == before


@pytest.mark.parametrize("alpha", ["nan", "inf", "-1", "0", "x"])
def test_an_alpha_that_cant_be_meant_is_refused(with_server, alpha):
    async def work(client):
        await client.new_model(user_metadata={"evsys.lora_alpha": alpha})

    with pytest.raises(WireError, match="evsys.lora_alpha must be a number above 0"):
        with_server(work)


def test_a_few_bytes_that_claim_much_memory_are_refused(with_server):
    empty = length_delimited(2, np.zeros(2, "<i8").tobytes())
    sparse = length_delimited(2, empty) + integer(3, 2) + integers(4, (1, 1 << 24))
    example = length_delimited(1, length_delimited(1, length_delimited(1, b"\1\0\0\0"))) + entries(
        2, {"target_tokens": length_delimited(2, sparse)}
    )

    async def work(client):
        model = await client.new_model()
        head, tail = text(1, model.id) + integer(2, model.seq()), text(4, "cross_entropy")
        with pytest.raises(FailedError, match="send fewer examples") as failed:
            await client.fetch(await model.send(head + length_delimited(3, example) * 6 + tail))
        await model.forward_backward([datum()])
        return failed.value.category

    assert with_server(work) == "user"


def test_later_chunks_may_come_before_the_first(with_server):
    async def work(client):
        model, other = await client.new_model(), await client.new_model()
        bodies = [model.request([datum(text)]) for text in ("first one", "second one", "third one")]
        promises = [await model.send(body) for body in reversed(bodies)]
        step = asyncio.create_task(model.optim_step())
        for promise in promises:
            await client.fetch(promise)
        for words in ("first one", "second one", "third one"):
            await other.forward_backward([datum(words)])
        return (await step), await other.optim_step()

    step, other = with_server(work)
    assert step == other


def test_a_request_that_is_sent_again_runs_once(with_server):
    async def work(client):
        model, other = await client.new_model(), await client.new_model()
        body = model.request([datum()])
        promises = [await model.send(body) for _ in range(3)]
        await client.fetch(promises[0])
        step = {"model_id": model.id, "seq_id": model.seq(), "adam_params": {"learning_rate": 0.01}}
        steps = [await client.promised("optim_step", **step) for _ in range(3)]
        again = await client.fetch(await model.send(body))
        await other.forward_backward([datum()])
        await other.optim_step()
        return (
            promises,
            steps,
            again,
            (await model.forward_backward([datum()])).metrics,
            (await other.forward_backward([datum()])).metrics,
        )

    promises, steps, again, metrics, once = with_server(work)
    assert promises[0] == promises[1] == promises[2]
    assert steps[0] == steps[1] == steps[2]
    assert again
    assert metrics == once


def test_a_body_that_is_damaged_behind_its_address_takes_its_turn(with_server):
    async def work(client):
        model = await client.new_model()
        body = model.request([datum()])
        with pytest.raises(FailedError) as failed:
            await client.fetch(await model.send(body[:-3]))
        await model.forward_backward([datum()])
        return str(failed.value)

    assert "the message ends" in with_server(work)


def test_a_body_that_is_too_long_takes_its_turn(with_server):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(WireError) as refused:
            await model.send(model.request([datum("long" * 4000)]))
        await model.forward_backward([datum()])
        return refused.value.status

    assert with_server(work, limits=Limits(body_bytes=20_000)) == 413


def test_a_body_without_an_address_is_refused(with_server):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(WireError) as refused:
            await model.send(b"\xff\xff")
        return refused.value.status

    assert with_server(work) == 400


def test_settings_that_cant_be_are_the_requests_failure(with_server):
    async def work(client):
        model = await client.new_model()
        messages = []
        for body in ({"adam_params": {"learning_rate": "fast"}}, {"optimizer_params": {"type": "dimuon"}}):
            with pytest.raises(FailedError) as failed:
                await model.call("optim_step", **body)
            messages.append(str(failed.value))
        await model.forward_backward([datum()])
        await model.optim_step()
        return messages

    number, family = with_server(work)
    assert "learning_rate: expected a number" in number
    assert "only Adam" in family


def test_models_of_one_base_are_trained_side_by_side(with_server):
    async def work(client):
        session = await client.new_session()
        models = [await client.new_model(session, number) for number in range(3)]
        alone = await client.new_model()

        async def train(model, text):
            for _ in range(3):
                await model.forward_backward([datum(text)])
                await model.optim_step()
            return (await model.forward_backward([datum(text)])).metrics

        together = await asyncio.gather(*(train(model, "same text") for model in models))
        return together, await train(alone, "same text")

    together, alone = with_server(work)
    assert together == [alone] * 3


def test_two_models_of_one_base_dont_meet(with_server):
    async def work(client):
        session = await client.new_session()
        trained, fresh = await client.new_model(session, 0), await client.new_model(session, 1)
        before = (await fresh.forward_backward([datum()], forward_only=True)).metrics
        await trained.forward_backward([datum()])
        await trained.optim_step()
        return before, (await fresh.forward_backward([datum()], forward_only=True)).metrics

    before, after = with_server(work)
    assert before == after


def test_rank_alpha_and_seed_are_the_clients(with_server):
    async def loss(client, **fields):
        model = await client.new_model(**fields)
        await model.forward_backward([datum()])
        await model.optim_step()
        return (await model.forward_backward([datum()], forward_only=True)).metrics["loss:sum"]

    async def work(client):
        base = {"rank": 4, "seed": 1}
        return [
            await loss(client, lora_config=base),
            await loss(client, lora_config={**base, "seed": 2}),
            await loss(client, lora_config={**base, "rank": 8}),
            await loss(client, lora_config=base, user_metadata={"evsys.lora_alpha": "8"}),
            await loss(client, lora_config=base),
        ]

    found = with_server(work)
    assert len(set(found[:4])) == 4
    assert found[0] == found[4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_model": "gpt-9"}, "'gpt-9' isn't served here; served: evsys/tiny"),
        ({"lora_config": {"rank": 0}}, "rank: expected a whole number from 1"),
        ({"lora_config": {"rank": 4, "train_attn": False, "train_mlp": False}}, "must be true"),
        ({"optimizer_config": {"type": "dimuon"}}, "only adamw"),
        ({"user_metadata": {"evsys.lora_alpha": "big"}}, "must be a number"),
    ],
)
def test_a_model_that_cant_be_is_refused(with_server, fields, message):
    async def work(client):
        with pytest.raises(WireError, match=message) as refused:
            await client.new_model(**fields)
        return refused.value.status

    assert with_server(work) == 400


@pytest.mark.parametrize("raised", [BackendError("no card"), SystemExit(3)])
def test_a_model_that_couldnt_be_made_isnt_there_and_takes_no_place(with_server, monkeypatch, raised):
    async def work(client):
        session = await client.new_session()
        with monkeypatch.context() as patch:

            async def prepare(*_args, **_kwargs):
                raise raised

            patch.setattr(MockBackend, "prepare", prepare)
            for number in range(3):
                with pytest.raises(FailedError, match="no card|SystemExit: 3"):
                    await client.new_model(session, number)
        runs = await client.call("GET", "training_runs")
        found = await client.call("GET", f"sessions/{session}")
        assert (runs["training_runs"], found["training_run_ids"]) == ([], [])
        model = await client.new_model(session, 3)
        return await model.forward_backward([datum()])

    assert with_server(work, limits=Limits(models=1))


def test_a_session_that_ends_while_its_models_are_made_ends_all_of_them(with_server, monkeypatch):
    async def work(client):
        begun = [asyncio.Event() for _ in range(3)]
        session = await client.new_session()
        waiting = iter(begun)

        async def prepare(*_args, **_kwargs):
            next(waiting).set()
            await asyncio.Event().wait()

        monkeypatch.setattr(MockBackend, "prepare", prepare)
        making = [asyncio.ensure_future(client.new_model(session, number)) for number in range(3)]
        for event in begun:
            await event.wait()
        await client.post(f"sessions/{session}/finish", reason={"type": "success"})
        for model in making:
            with pytest.raises(FailedError, match="has ended"):
                await model
        assert (await client.call("GET", "training_runs"))["training_runs"] == []

    with_server(work)


def test_a_model_that_was_unloaded_is_gone(with_server):
    async def work(client):
        model = await client.new_model()
        assert (await client.promised("unload_model", model_id=model.id))["model_id"] == model.id
        with pytest.raises(WireError) as refused:
            await model.optim_step()
        return refused.value.status

    assert with_server(work) == 404


def test_more_models_than_may_be_trained_are_refused_until_one_ends(with_server):
    async def work(client):
        models = [await client.new_model() for _ in range(2)]
        with pytest.raises(WireError, match="2 models are trained here already"):
            await client.new_model()
        await client.post(f"sessions/{models[0].session}/finish", reason={"type": "success"})
        return await client.new_model()

    assert with_server(work, limits=Limits(models=2))
