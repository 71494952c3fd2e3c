"""What a run does when calls fail, replies get lost, and servers die."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_proxy import Fault, proxy_to
from toy_training import MODEL, TEXTS, backend, datum, logprobs, step, steps, trained

from evsys.errors import BackendError, ConfigError
from evsys.types import Checkpoint, Datum, SamplingParams
from evsys_backend_tinker.config import Deadlines
from evsys_runtime.evaluation.failures import failure_of

FORWARD, OPTIM, RESULT = "/forward_backward", "/optim_step", "/retrieve_future"


class Said:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    def warning(self, event: str, **facts) -> None:
        self.events.append((event, facts))

    info = debug = error = warning

    def told(self, event: str) -> list[dict]:
        return [facts for name, facts in self.events if name == event]


PASSING = {
    "500 on dispatch": Fault(path=FORWARD, how="status", status=500, times=2),
    "503 on dispatch": Fault(path=OPTIM, how="status", status=503, headers={"Retry-After": "1"}),
    "429 on dispatch": Fault(path=FORWARD, how="status", status=429, headers={"Retry-After": "1"}),
    "402 on dispatch": Fault(path=OPTIM, how="status", status=402),
    "500 on retrieval": Fault(path=RESULT, how="status", status=500, times=3, skip=2),
    "429 on retrieval": Fault(path=RESULT, how="status", status=429, times=1, skip=2),
    "402 on retrieval": Fault(path=RESULT, how="status", status=402, times=1, skip=2),
    "dropped before the work": Fault(path=OPTIM, how="drop_before", times=2),
    "dropped after the work": Fault(path=OPTIM, how="drop_after", times=2),
    "gradient's reply lost": Fault(path=FORWARD, how="drop_after", times=2),
    "result's reply lost": Fault(path=RESULT, how="drop_after", times=2, skip=2),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_fault_that_passes_changes_no_number(mock_server, tmp_path: Path, fault: Fault):
    async def run() -> tuple[list[float], list[float]]:
        async with proxy_to(mock_server.base_url) as proxy:
            proxy.faults.append(fault)
            return await trained(proxy.base_url, tmp_path)

    found = asyncio.run(run())
    assert fault.met > 0
    assert found == asyncio.run(trained(mock_server.base_url, tmp_path))


def test_a_server_that_has_forgotten_a_result_gets_the_steps_since_the_last_state_again(
    mock_server, tmp_path: Path
):
    log = Said()

    async def run() -> list[float]:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0, log=log)
            await steps(client, 0, 2)
            await client.save_state(tmp_path)
            await step(client, 2)
            proxy.faults.append(Fault(path=RESULT, how="status", status=410))
            await step(client, 3)
            found = await logprobs(client)
            await made.teardown(client)
            return found

    assert asyncio.run(run()) == asyncio.run(trained(mock_server.base_url, tmp_path))[1]
    [reopened] = log.told("model.reopened")
    assert reopened["steps_repeated"] in {
        1,
        2,
    }  # the fourth step's optimiser may be done when its gradient is asked for


@pytest.mark.parametrize("saved", [False, True], ids=["from new weights", "from a state"])
def test_a_server_that_is_started_again_goes_on_where_it_was(serve, tmp_path: Path, saved: bool):
    server, log = serve(), Said()

    async def run() -> tuple[list[float], list[int]]:
        made = backend(server.base_url, dead_after=60.0)
        client = await made.prepare(MODEL, tmp_path, 0, log=log)
        await steps(client, 0, 2)
        if saved:
            await client.save_state(tmp_path)
        sampler = await client.sampling_client()
        before = (
            (await sampler.sample(list(b"hello"), SamplingParams(max_tokens=4, seed=1))).sequences[0].tokens
        )
        await step(client, 2)
        server.kill()
        await asyncio.to_thread(server.start)
        await step(client, 3)
        after = (
            (await sampler.sample(list(b"hello"), SamplingParams(max_tokens=4, seed=1))).sequences[0].tokens
        )
        assert after == before
        found = await logprobs(client)
        await made.teardown(client)
        return found

    assert asyncio.run(run()) == asyncio.run(trained(server.base_url, tmp_path))[1]
    assert len(log.told("model.reopened")) == 1


def test_a_server_that_dies_while_a_result_is_awaited_ends_the_run_in_time(serve, tmp_path: Path):
    server, log = serve(), Said()

    async def run() -> float:
        async with proxy_to(server.base_url) as proxy:
            made = backend(proxy.base_url, dead_after=1.0)
            client = await made.prepare(MODEL, tmp_path, 0, log=log)
            await step(client, 0)
            proxy.faults.append(Fault(path=RESULT, how="delay", seconds=60.0, times=9))
            waiting = asyncio.ensure_future(step(client, 1))
            await proxy.faults[0].struck.wait()
            server.kill()
            proxy.target = server.base_url
            started = time.monotonic()
            with pytest.raises(BackendError, match="hasn't answered"):
                await waiting
            seconds = time.monotonic() - started
            await made.teardown(client)
            return seconds

    assert asyncio.run(run()) < 15
    assert log.told("server.silent")


def test_a_refused_datum_ends_its_call_and_nothing_hangs(mock_server, tmp_path: Path):
    wrong = Datum(
        tokens=np.array([5000]), loss_inputs={"target_tokens": np.array([5001]), "weights": np.ones(1)}
    )

    async def run() -> list[float]:
        made = backend(mock_server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        refused = client.forward_backward([wrong], "cross_entropy")
        with pytest.raises(BackendError, match="outside the vocabulary"):
            await refused
        await steps(client, 2, 2)
        found = await logprobs(client)
        await made.teardown(client)
        return found

    assert asyncio.run(run()) == asyncio.run(trained(mock_server.base_url, tmp_path))[1]


def test_a_call_refused_on_dispatch_takes_back_what_was_submitted_behind_it(mock_server, tmp_path: Path):
    async def run() -> list[float]:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            await steps(client, 0, 2)
            proxy.faults.append(Fault(path=FORWARD, how="status", status=400))
            with pytest.raises(BackendError, match="refused forward_backward: injected"):
                await step(client, 2)
            await steps(client, 2, 2)
            found = await logprobs(client)
            await made.teardown(client)
            return found

    assert asyncio.run(run()) == asyncio.run(trained(mock_server.base_url, tmp_path))[1]


def test_a_slow_config_endpoint_blocks_nothing_and_ends_by_its_deadline(mock_server, tmp_path: Path):
    async def run() -> tuple[int, float]:
        async with proxy_to(mock_server.base_url) as proxy:
            # the client's own call is the second: the first one is the look that evsys takes
            proxy.faults.append(Fault(path="/client/config", how="delay", seconds=4.0, skip=1))
            proxy.wanted = "finish"
            made = backend(proxy.base_url, deadlines=Deadlines(connect=20.0, create=2.0))
            started, ticks = time.monotonic(), 0
            preparing = asyncio.ensure_future(made.prepare(MODEL, tmp_path, 0))
            while not preparing.done():
                await asyncio.sleep(0.05)
                ticks += 1
            with pytest.raises(BackendError, match=r"hasn't finished a call \(create\) within 2 s"):
                await preparing
            seconds = time.monotonic() - started
            # what the client opens after all is closed again, so that no session stays behind
            ended = await asyncio.to_thread(proxy.reached.wait, 30)
            assert ended
            return ticks, seconds

    ticks, seconds = asyncio.run(run())
    assert ticks > 10
    assert seconds < 25


def test_a_snapshot_in_use_is_lost_with_the_server_where_the_state_of_a_later_step_was_saved(
    serve, tmp_path: Path
):
    server = serve()

    async def run() -> None:
        made = backend(server.base_url, dead_after=60.0)
        client = await made.prepare(MODEL, tmp_path, 0)
        sampler = await client.sampling_client()
        await steps(client, 0, 1)
        await client.save_state(tmp_path)
        server.kill()
        await asyncio.to_thread(server.start)
        with pytest.raises(BackendError, match="the state of a later step was saved"):
            await sampler.sample(list(b"hello"), SamplingParams(max_tokens=2))
        assert client.version == 1
        await steps(client, 1, 1)
        await made.teardown(client)

    asyncio.run(run())


def test_a_snapshot_of_the_step_whose_state_was_saved_last_survives_the_server(serve, tmp_path: Path):
    server = serve()

    async def run() -> tuple[Any, Any]:
        made = backend(server.base_url, dead_after=60.0)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        sampler = await client.sampling_client()
        asked = (list(b"hello"), SamplingParams(max_tokens=8, seed=3))
        before = await sampler.sample(*asked)
        await client.save_state(tmp_path)
        server.kill()
        await asyncio.to_thread(server.start)
        after = await sampler.sample(*asked)
        await made.teardown(client)
        return before, after

    before, after = asyncio.run(run())
    [before], [after] = before.sequences, after.sequences
    assert list(before.tokens) == list(after.tokens)
    assert before.logprobs == pytest.approx(after.logprobs, abs=1e-5)


def test_a_state_that_has_expired_is_said_to_be_gone(serve, tmp_path: Path):
    server = serve()

    async def save() -> Mapping[str, Any]:
        made = backend(server.base_url, ttl=3600, final_ttl=3600)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 1)
        try:
            return await client.save_state(tmp_path)
        finally:
            await made.teardown(client)

    async def load(state: Mapping[str, Any]) -> None:
        made = backend(server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0, Checkpoint(step=1, directory=tmp_path, state=state))
        await made.teardown(client)

    state = asyncio.run(save())
    asyncio.run(load(state))
    server.kill()
    [manifest] = server.folder.rglob("weights/*/checkpoint.json")
    saved = json.loads(manifest.read_text("utf-8"))
    assert saved["expires"] > time.time()
    saved["expires"] = saved["created"]  # its time is over
    manifest.write_text(json.dumps(saved), encoding="utf-8")
    server.start()
    with pytest.raises(BackendError, match=r"can't be loaded.*may have expired"):
        asyncio.run(load(state))


def test_a_save_whose_reply_is_lost_is_found_again(mock_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            await steps(client, 0, 2)
            proxy.faults.append(Fault(path="/save_weights", how="drop_after"))
            state = await client.save_state(tmp_path)
            await made.teardown(client)
            assert proxy.faults[0].met == 1
        again = backend(mock_server.base_url)
        client = await again.prepare(MODEL, tmp_path, 0, Checkpoint(step=2, directory=tmp_path, state=state))
        await again.teardown(client)

    asyncio.run(run())


def test_a_save_that_fails_on_the_server_says_why_and_the_next_one_works(mock_server, tmp_path: Path):
    full = {"error": "No space left on device", "category": "server"}

    async def run() -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            proxy.faults.append(Fault(path=RESULT, how="answer", body=full))
            with pytest.raises(
                BackendError, match="save_state failed on the server: No space left on device"
            ):
                await client.save_state(tmp_path)
            assert json.loads(json.dumps(await client.save_state(tmp_path)))["path"].startswith("tinker://")
            await made.teardown(client)

    asyncio.run(run())


def test_what_the_client_says_of_a_pause_stands_in_the_log_of_its_run(mock_server, tmp_path: Path):
    paused, other = Said(), Said()

    async def run(log: Said, fault: Fault | None) -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0, log=log)
            if fault is not None:
                proxy.faults.append(fault)
            await steps(client, 0, 2)
            await made.teardown(client)

    async def both() -> None:
        fault = Fault(path=RESULT, how="status", status=402, body={"error": "no credit"})
        await asyncio.gather(run(paused, fault), run(other, None))

    asyncio.run(both())
    assert any("paused due to billing" in facts["what"] for facts in paused.told("server.said"))
    assert other.told("server.said") == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(path=FORWARD, how="status", status=500, times=10**6),
        Fault(path=FORWARD, how="status", status=402, times=10**6),
        Fault(path=RESULT, how="status", status=402, times=10**6),
    ],
    ids=["500 on dispatch", "402 on dispatch", "402 on retrieval"],
)
def test_a_call_that_fails_for_ever_ends_by_its_deadline(mock_server, tmp_path: Path, fault: Fault):
    async def run() -> float:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url, deadlines=Deadlines(train=2.0))
            client = await made.prepare(MODEL, tmp_path, 0)
            proxy.faults.append(fault)
            started = time.monotonic()
            with pytest.raises(BackendError, match=r"a call \(train\) within 2 s"):
                await step(client, 0)
            seconds = time.monotonic() - started
            await made.teardown(client)
            return seconds

    assert asyncio.run(run()) < 15


def test_a_save_that_is_refused_for_ever_ends_by_its_deadline(mock_server, tmp_path: Path):
    async def run() -> float:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url, deadlines=Deadlines(save=2.0))
            client = await made.prepare(MODEL, tmp_path, 0)
            proxy.faults.append(Fault(path="/save_weights", how="status", status=409, times=10**6))
            started = time.monotonic()
            with pytest.raises(BackendError, match=r"a call \(save\) within 2 s"):
                await client.save_state(tmp_path)
            seconds = time.monotonic() - started
            await made.teardown(client)
            return seconds

    assert asyncio.run(run()) < 15


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_names_no_line_of_the_client(mock_server, tmp_path: Path, status: int):
    async def run() -> BackendError:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            proxy.faults.append(Fault(path=FORWARD, how="status", status=status))
            with pytest.raises(BackendError, match="injected") as caught:
                await step(client, 0)
            await made.teardown(client)
            return caught.value

    assert failure_of(asyncio.run(run())).place is None


@pytest.mark.parametrize("times", [2, 4])
def test_a_model_that_is_lost_while_it_is_repeated_goes_on_where_it_was(
    mock_server, tmp_path: Path, times: int
):
    async def run() -> list[float]:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            await steps(client, 0, 2)
            proxy.faults.append(Fault(path=FORWARD, how="status", status=404, times=times))
            await steps(client, 2, 2)
            found = await logprobs(client)
            await made.teardown(client)
            return found

    assert asyncio.run(run()) == asyncio.run(trained(mock_server.base_url, tmp_path))[1]


def test_a_model_that_is_lost_for_ever_ends_the_run(mock_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0)
            await steps(client, 0, 2)
            proxy.faults.append(Fault(path=FORWARD, how="status", status=404, times=10**6))
            with pytest.raises(BackendError, match="5 times in a row: injected"):
                await step(client, 2)
            await made.teardown(client)

    asyncio.run(run())


def test_a_wrong_address_is_said_within_seconds(tmp_path: Path):
    async def run() -> float:
        started = time.monotonic()
        with pytest.raises(ConfigError, match="can't be reached: nothing listens there"):
            await backend("http://127.0.0.1:9").prepare(MODEL, tmp_path, 0)
        return time.monotonic() - started

    assert asyncio.run(run()) < 5


def test_a_model_that_is_lost_with_too_many_steps_behind_it_ends_the_run_and_says_what_to_do(
    mock_server, tmp_path: Path
):
    async def run() -> None:
        async with proxy_to(mock_server.base_url) as proxy:
            made = backend(proxy.base_url, replay_steps=1)
            client = await made.prepare(MODEL, tmp_path, 0)
            await steps(client, 0, 3)
            proxy.faults.append(Fault(path=RESULT, how="status", status=410))
            with pytest.raises(BackendError, match="3 steps since its last state are more than are repeated"):
                await client.forward([datum(TEXTS[0])])
            await made.teardown(client)

    asyncio.run(run())
