"""The backend on a server of ours, through the official client."""

import asyncio
import json
import logging
import os
from pathlib import Path

import attrs
import numpy as np
import pytest
from fault_proxy import proxy_to
from toy_training import ADAM, MODEL, TEXTS, backend, datum, logprobs, step, steps, trained

from evsys import Registry
from evsys.errors import BackendError
from evsys.types import AdamParams, Checkpoint, LoraSpec, SamplingParams
from evsys_runtime.training.two_pass import forward_backward

OTHER = attrs.evolve(MODEL, lora=LoraSpec(rank=4, alpha=8.0, targets=("q_proj", "down_proj")))


def test_a_server_of_ours_trains_what_the_protocol_has_no_words_for(local_server, tmp_path: Path):
    async def run(made) -> tuple[list[float], list[float]]:
        client = await made.prepare(OTHER, tmp_path, 0)
        try:
            return await steps(client, 0, 3), await logprobs(client)
        finally:
            await made.teardown(client)

    in_process = asyncio.run(run(Registry().build("backend", "local")))
    assert asyncio.run(run(backend(local_server.base_url))) == in_process
    usual = asyncio.run(trained(local_server.base_url, tmp_path, 3))
    assert usual[0] != in_process[0]


@pytest.mark.parametrize("kind", ["mock", "local"])
def test_a_training_through_the_wire_gives_the_numbers_of_one_in_process(request, tmp_path: Path, kind: str):
    async def in_process() -> tuple[list[float], list[float]]:
        made = Registry().build("backend", kind)
        client = await made.prepare(MODEL, tmp_path, 0)
        try:
            return await steps(client, 0, 4), await logprobs(client)
        finally:
            await made.teardown(client)

    server = request.getfixturevalue(f"{kind}_server")
    losses, found = asyncio.run(in_process())
    over_losses, over_found = asyncio.run(trained(server.base_url, tmp_path))
    assert over_losses == losses
    assert over_found == [float(np.float32(value)) for value in found]


def test_a_state_restores_weights_and_optimiser(mock_server, tmp_path: Path):

    async def run() -> None:
        first = backend(mock_server.base_url)
        client = await first.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        state = await client.save_state(tmp_path)
        onward = await steps(client, 2, 3), await logprobs(client)
        await first.teardown(client)

        second = backend(mock_server.base_url)
        checkpoint = Checkpoint(step=2, directory=tmp_path, state=json.loads(json.dumps(state)))
        resumed = await second.prepare(MODEL, tmp_path, 0, checkpoint)
        assert resumed.version == 2
        assert (await steps(resumed, 2, 3), await logprobs(resumed)) == onward
        await second.teardown(resumed)

        third = backend(mock_server.base_url)
        cold = await third.prepare(MODEL, tmp_path, 0, attrs.evolve(checkpoint, with_optimizer=False))
        assert (await steps(cold, 2, 3), await logprobs(cold)) != onward
        await third.teardown(cold)

    asyncio.run(run())


def test_a_restored_model_that_differs_from_the_saved_one_is_refused(mock_server, tmp_path: Path):

    async def run() -> None:
        first = backend(mock_server.base_url)
        client = await first.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 1)
        state = dict(await client.save_state(tmp_path))
        state["check"] = {**state["check"], "logprobs": [value - 1 for value in state["check"]["logprobs"]]}
        await first.teardown(client)
        second = backend(mock_server.base_url)
        with pytest.raises(BackendError, match="restored other weights"):
            await second.prepare(MODEL, tmp_path, 0, Checkpoint(step=1, directory=tmp_path, state=state))

    asyncio.run(run())


def test_samples_carry_the_trainers_logprobs_and_their_version(local_server, tmp_path: Path):

    async def run() -> None:
        made = backend(local_server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        sampler = await client.sampling_client()
        assert sampler.version == 2
        prompt = list(b"hello")
        params = SamplingParams(max_tokens=6, seed=7, prompt_logprobs=True)
        result = await sampler.sample(prompt, params, n=2)
        again = await sampler.sample(prompt, params, n=2)
        assert [s.tokens for s in result.sequences] == [s.tokens for s in again.sequences]
        assert len(result.prompt_logprobs) == len(prompt)
        first = result.sequences[0]
        whole = [*prompt, *first.tokens]
        said = await sampler.compute_logprobs(whole)
        assert np.isnan(said[0])
        np.testing.assert_allclose(said[len(prompt) :], first.logprobs, atol=1e-4)
        trainer = await client.forward([datum(bytes(whole).decode("latin-1"))]) if max(whole) < 128 else None
        if trainer is not None:
            np.testing.assert_allclose(trainer.logprobs[0], said[1:], atol=1e-4)
        await steps(client, 2, 1)
        np.testing.assert_array_equal(await sampler.compute_logprobs(whole), said)
        await sampler.close()
        with pytest.raises(BackendError, match="closed"):
            await sampler.sample(prompt, params)
        await made.teardown(client)

    asyncio.run(run())


def test_a_loss_of_ones_own_takes_two_passes_and_gives_the_weights_of_the_built_in(
    local_server, tmp_path: Path
):

    def own(data, values):
        return -sum((d.loss_inputs["weights"] * v).sum() for d, v in zip(data, values, strict=True))

    async def run(loss) -> list[float]:
        made = backend(local_server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        await forward_backward(client, client.capabilities, [datum(TEXTS[0])], loss)
        await client.optim_step(ADAM)
        found = await logprobs(client)
        await made.teardown(client)
        return found

    np.testing.assert_allclose(asyncio.run(run(own)), asyncio.run(run("cross_entropy")), atol=1e-6)


def test_a_failed_loss_of_ones_own_leaves_the_client_usable(mock_server, tmp_path: Path):

    def broken(data, values):
        raise ZeroDivisionError("of my own making")

    async def run() -> None:
        made = backend(mock_server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        with pytest.raises(Exception, match="of my own making"):
            await forward_backward(client, client.capabilities, [datum(TEXTS[0])], broken)
        losses = await steps(client, 0, 4)
        await made.teardown(client)
        assert losses == (await trained(mock_server.base_url, tmp_path))[0]

    asyncio.run(run())


def test_a_session_says_how_it_ended(mock_server, tmp_path: Path):
    told = []

    async def run(failing: bool) -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            try:
                if failing:
                    raise ValueError("something of the run's")
            except ValueError:
                await made.teardown(client)
            else:
                await made.teardown(client)
            told.append(json.loads(proxy.bodies["finish"]))

    asyncio.run(run(failing=False))
    asyncio.run(run(failing=True))
    assert [one["reason"]["type"] for one in told] == ["success", "errored"]
    assert told[1]["detail"] == "ValueError"


def test_nothing_is_reported_to_the_server_and_nothing_of_the_process_changes(mock_server, tmp_path: Path):
    before, handlers = dict(os.environ), list(logging.getLogger("tinker").handlers)

    async def run(**params: bool) -> tuple[bool, int]:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url, **params)
            client = await made.prepare(MODEL, tmp_path, 0)
            reports = client.stream.model.get_telemetry() is not None
            await step(client, 0)
            await made.teardown(client)
            return reports, proxy.calls.get("telemetry", 0)

    assert asyncio.run(run()) == (False, 0)
    assert asyncio.run(run(telemetry=True))[0]
    assert dict(os.environ) == before
    assert logging.getLogger("tinker").handlers == handlers


def test_steps_are_submitted_without_waiting(mock_server, tmp_path: Path):

    async def run() -> list[float]:
        made = backend(mock_server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        submitted = []
        for index in range(4):
            submitted.append(client.forward_backward([datum(TEXTS[index])], "cross_entropy"))
            client.optim_step(AdamParams(learning_rate=1e-2))
        assert not any(one.done() for one in submitted)
        losses = [(await one).loss for one in submitted]
        await made.teardown(client)
        return losses

    assert asyncio.run(run()) == asyncio.run(trained(mock_server.base_url, tmp_path))[0]


def test_two_runs_on_two_servers_go_side_by_side_and_one_survives_the_others_end(serve, tmp_path: Path):
    one, other = serve(name="one"), serve(name="other")

    async def doomed() -> None:
        made = backend(other.base_url, dead_after=1.0)
        client = await made.prepare(MODEL, tmp_path, 0)
        await step(client, 0)
        other.kill()
        with pytest.raises(BackendError, match="hasn't answered"):
            await steps(client, 1, 3)
        await made.teardown(client)

    async def run() -> list[float]:
        async with asyncio.TaskGroup() as group:
            group.create_task(doomed())
            surviving = group.create_task(trained(one.base_url, tmp_path, 8))
        return surviving.result()[0]

    assert len(asyncio.run(run())) == 8
