"""Sampling calls that a deterministic run makes together have the bits that they have in process, whatever happens on the way."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from fault_proxy import Fault, Proxy, proxy_to
from toy_training import MODEL, backend, steps

from evsys import current_registry
from evsys.errors import BackendError
from evsys.types import SamplingParams
from evsys_backend_tinker.config import Deadlines
from evsys_backend_tinker.http_json import JsonApi
from evsys_backend_tinker.meter import Meter
from evsys_backend_tinker.sampler import Snapshot, TinkerSampler
from evsys_backend_tinker.together import key_of
from evsys_backend_tinker.waiting import Waiting
from evsys_runtime.accounting.limiter import Limiter
from evsys_runtime.rendering.tokenizers import ByteTokenizer
from evsys_server.app import make_app
from evsys_server.batches import Drawing
from evsys_server.limits import Limits

NAMED, DRAWN, RESULT = "/sample_batches", "/asample", "/retrieve_future"
PROMPTS = [list(text.encode()) for text in ("hello", "the cat", "a", "hello", "some other text")]


async def together(client: Any, sampler: Any = None) -> list[list[float]]:
    """All prompts at once; the logprobs of their samples, as far as float32 holds them."""
    sampler = sampler or await client.sampling_client()
    ends = tuple(client.tokenizer.eos_token_ids)
    found = await asyncio.gather(
        *(
            sampler.sample(prompt, SamplingParams(max_tokens=12, seed=seed, stop_token_ids=ends))
            for seed, prompt in enumerate(PROMPTS)
        )
    )
    return [np.asarray(one.sequences[0].logprobs, np.float32).tolist() for one in found]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """What a run in process gets."""

    async def run() -> list[list[float]]:
        made = current_registry().build("backend", "local")
        client = await made.prepare(MODEL, tmp_path_factory.mktemp("local"), 0, deterministic=True)
        await steps(client, 0, 2)
        found = await together(client)
        await made.teardown(client)
        return found

    return asyncio.run(run())


async def over(
    proxy: Proxy, folder: Path, *faults: Fault, deterministic: bool = True, **params: Any
) -> list[list[float]]:
    made = backend(proxy.base_url, **params)
    client = await made.prepare(MODEL, folder, 0, deterministic=deterministic)
    await steps(client, 0, 2)
    sampler = await client.sampling_client()
    proxy.faults.extend(faults)
    try:
        return await together(client, sampler)
    finally:
        await made.teardown(client)


PASSING = {
    "nothing": (),
    "500 on naming": (Fault(path=NAMED, how="status", status=500, times=2),),
    "429 on naming": (Fault(path=NAMED, how="status", status=429),),
    "naming dropped": (Fault(path=NAMED, how="drop_before"),),
    "the reply to naming lost": (Fault(path=NAMED, how="drop_after"),),
    "sampler lost when named": (Fault(path=NAMED, how="status", status=410),),
    "429 on one of them": (Fault(path=DRAWN, how="status", status=429, skip=1),),
    "the reply to one lost": (Fault(path=DRAWN, how="drop_after", skip=2),),
    "one refused as lost": (Fault(path=DRAWN, how="status", status=404, skip=2),),
    "results lost": (Fault(path=RESULT, how="drop_after", times=2),),
}


@pytest.mark.parametrize("faults", PASSING.values(), ids=PASSING.keys())
def test_calls_that_are_made_together_have_the_bits_of_a_run_in_process(
    local_server, tmp_path: Path, expected: list[list[float]], faults: tuple[Fault, ...]
):
    async def run() -> tuple[list[list[float]], int]:
        async with proxy_to(local_server.base_url) as proxy:
            found = await over(proxy, tmp_path, *faults)
            return found, proxy.calls["sample_batches"]

    found, named = asyncio.run(run())
    assert all(fault.met == fault.times for fault in faults)
    assert named >= 1
    assert found == expected


async def one_by_one(
    client: Any, sampler: Any, places: Sequence[int], *, bad: SamplingParams | None = None
) -> list[list[float] | str]:
    """Some prompts at once: the logprobs of their samples, or why there are none. The second has parameters of its own where they are given."""
    ends = tuple(client.tokenizer.eos_token_ids)
    params = [SamplingParams(max_tokens=12, seed=place, stop_token_ids=ends) for place in range(len(PROMPTS))]
    if bad is not None:
        params[1] = bad
    found = await asyncio.gather(
        *(sampler.sample(PROMPTS[place], params[place]) for place in places), return_exceptions=True
    )
    return [
        str(one)
        if isinstance(one, BaseException)
        else np.asarray(one.sequences[0].logprobs, np.float32).tolist()
        for one in found
    ]


def without(places: Sequence[int], folder: Path) -> list[list[float] | str]:
    """What a run in process gets of some prompts."""

    async def run() -> list[list[float] | str]:
        made = current_registry().build("backend", "local")
        client = await made.prepare(MODEL, folder, 0, deterministic=True)
        await steps(client, 0, 2)
        found = await one_by_one(client, await client.sampling_client(), places)
        await made.teardown(client)
        return found

    return asyncio.run(run())


REFUSED = {
    "a bad request": (Fault(path=DRAWN, how="status", status=400, skip=1),),
    "a long body": (Fault(path=DRAWN, how="status", status=413, skip=1),),
    "the reply to saying so lost": (
        Fault(path=DRAWN, how="status", status=422, skip=1),
        Fault(path=NAMED, how="drop_after", skip=1),
    ),
    "two of them": (Fault(path=DRAWN, how="status", status=400, skip=1, times=2),),
    "all of them": (Fault(path=DRAWN, how="status", status=400, times=len(PROMPTS)),),
}


@pytest.mark.parametrize("faults", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_call_fails_at_once_with_its_reason_and_the_others_have_the_bits_of_a_run_in_process(
    local_server, tmp_path: Path, faults: tuple[Fault, ...]
):
    async def run() -> list[list[float] | str]:
        async with proxy_to(local_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path / "over", 0, deterministic=True)
            await steps(client, 0, 2)
            sampler = await client.sampling_client()
            proxy.faults.extend(faults)
            async with asyncio.timeout(30):
                found = await one_by_one(client, sampler, range(len(PROMPTS)))
            await made.teardown(client)
            return found

    found = asyncio.run(run())
    told = [place for place, one in enumerate(found) if isinstance(one, str)]
    assert [found[place] for place in told] == ["sampling failed on the server: injected"] * faults[0].times
    assert all(fault.met == fault.times for fault in faults)
    there = [place for place in range(len(PROMPTS)) if place not in told]
    assert [found[place] for place in there] == without(there, tmp_path / "local")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (SamplingParams(max_tokens=5000, seed=1), "exceed the model's context"),
        (SamplingParams(max_tokens=12, seed=1, temperature="warm"), "temperature"),  # the client's own check
    ],
)
def test_a_call_that_cant_be_made_fails_alone(local_server, tmp_path: Path, bad: SamplingParams, reason: str):
    async def run() -> list[list[float] | str]:
        made = backend(local_server.base_url)
        client = await made.prepare(MODEL, tmp_path / "over", 0, deterministic=True)
        await steps(client, 0, 2)
        async with asyncio.timeout(30):
            found = await one_by_one(client, await client.sampling_client(), range(len(PROMPTS)), bad=bad)
        await made.teardown(client)
        return found

    found = asyncio.run(run())
    assert reason in str(found.pop(1))
    assert found == without([0, 2, 3, 4], tmp_path / "local")


@pytest.mark.parametrize(("outstanding", "served"), [(8, True), (4, False)])
def test_more_calls_than_a_server_samples_at_once_are_computed_together_as_far_as_there_is_room(
    tmp_path: Path, expected: list[list[float]], outstanding: int, served: bool
):
    async def run() -> list[list[float]]:
        limits = Limits(sampling=2, outstanding=outstanding)
        async with make_app(
            backend="local", directory=tmp_path / "server", deterministic=True, limits=limits
        ) as base_url:
            made = backend(base_url)
            client = await made.prepare(MODEL, tmp_path / "run", 0, deterministic=True)
            await steps(client, 0, 2)
            try:
                async with asyncio.timeout(30):
                    return await together(client)
            finally:
                await made.teardown(client)

    if served:
        assert asyncio.run(run()) == expected
    else:
        with pytest.raises(BackendError, match="refused 5 sample calls that are made together") as refused:
            asyncio.run(run())
        assert "of 1 to 4 requests, and this one of 5" in refused.value.message
        assert "lower n_concurrent" in str(refused.value.hint)


def test_a_server_that_never_takes_a_batch_is_given_up_in_time(local_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(local_server.base_url) as proxy:
            fault = Fault(path=NAMED, how="status", status=503, times=1000)
            with pytest.raises(BackendError, match=r"hasn't finished a call \(sample\) within 1 s"):
                await over(proxy, tmp_path, fault, deadlines=Deadlines(sample=1.0))

    asyncio.run(run())


def test_other_runs_name_no_batches(local_server, tmp_path: Path, expected: list[list[float]]):
    async def run() -> tuple[list[list[float]], Proxy]:
        async with proxy_to(local_server.base_url) as proxy:
            return await over(proxy, tmp_path, deterministic=False), proxy

    found, proxy = asyncio.run(run())
    assert "sample_batches" not in proxy.calls
    assert found != expected  # each is a batch of its own, so the tests above can tell
    assert [len(one) for one in found] == [len(one) for one in expected]


def test_a_server_that_knows_no_batches_is_named_as_the_reason(local_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(local_server.base_url) as proxy:
            fault = Fault(path=NAMED, how="status", status=404, body={})
            with pytest.raises(BackendError, match="takes no batches of sample calls"):
                await over(proxy, tmp_path, fault)

    asyncio.run(run())


def test_a_batch_whose_calls_nobody_waits_for_is_given_up(local_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(local_server.base_url) as proxy:
            made = backend(proxy.base_url, samples_at_once=1)
            client = await made.prepare(MODEL, tmp_path, 0, deterministic=True)
            sampler = await client.sampling_client()
            fault = Fault(path=NAMED, how="delay", seconds=60.0)
            proxy.faults.append(fault)
            wave = asyncio.ensure_future(together(client, sampler))
            await fault.struck.wait()
            wave.cancel()
            await asyncio.wait([wave])
            assert wave.cancelled()
            await together(client, sampler)  # the one slot is free again
            await made.teardown(client)

    asyncio.run(run())


@pytest.mark.parametrize("deterministic", [True, False])
def test_calls_on_another_snapshot_are_drawn_again_where_one_finds_that_the_server_lost_all(
    local_server, tmp_path: Path, deterministic: bool
):
    async def run() -> tuple[list[list[float]], ...]:
        async with proxy_to(local_server.base_url) as proxy:
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0, deterministic=deterministic)
            scored, trained = await client.sampling_client(), await client.sampling_client()
            before = await together(client, scored)
            waits = Fault(path=RESULT, how="delay", seconds=60.0, times=len(PROMPTS))
            proxy.faults.append(waits)
            scoring = asyncio.ensure_future(together(client, scored))
            await waits.struck.wait()
            proxy.faults.append(Fault(path=DRAWN, how="status", status=404))
            async with asyncio.timeout(40):
                found = await together(client, trained), await scoring
            await made.teardown(client)
            return before, *found

    before, trained, scored = asyncio.run(run())
    assert scored == trained == before


def sampler_of(inner: Any, *, is_past: Callable[[int], bool], together: bool) -> TinkerSampler:
    """A sampler of `inner`, in whose place stands one that answers once the model is made again."""

    class Whole:
        def compute_logprobs(self, tokens: Any) -> Future[Any]:
            outcome: Future[Any] = Future()
            outcome.set_result([None, *(-1.0 for _ in tokens.to_ints()[1:])])
            return outcome

    async def renew(generation: int, _error: Exception) -> None:
        snapshot.inner, snapshot.generation = Whole(), generation + 1

    snapshot = Snapshot(
        inner=inner,
        generation=0,
        renew=renew,
        lost=lambda _generation: asyncio.sleep(60.0),
        is_past=is_past,
    )
    return TinkerSampler(
        snapshot,
        tokenizer=ByteTokenizer(),
        version=0,
        waiting=Waiting(api=JsonApi(base_url="http://127.0.0.1:1")),
        limiter=Limiter(),
        meter=Meter(),
        one_seed=True,
        together=together,
        log=None,
    )


@pytest.mark.parametrize("past", [True, False])
def test_what_a_call_ends_with_tells_nothing_once_its_model_is_being_made_again(past: bool):
    """The server's word that a session has ended comes as any failure does, and before the new one is there."""

    class Ended:
        def compute_logprobs(self, _tokens: Any) -> Future[Any]:
            outcome: Future[Any] = Future()
            outcome.set_exception(RuntimeError("session 7 has ended"))
            return outcome

    sampler = sampler_of(Ended(), is_past=lambda generation: past and generation == 0, together=False)
    if past:
        assert asyncio.run(sampler.compute_logprobs([1, 2, 3]))[1:].tolist() == [-1.0, -1.0]
    else:
        with pytest.raises(BackendError, match="sampling failed on the server: session 7 has ended"):
            asyncio.run(sampler.compute_logprobs([1, 2, 3]))


def test_a_call_that_the_client_cancels_as_it_closes_a_lost_session_is_made_again():
    class Closed:
        def compute_logprobs(self, _tokens: Any) -> Future[Any]:
            outcome: Future[Any] = Future()
            outcome.cancel()
            return outcome

    sampler = sampler_of(Closed(), is_past=lambda _generation: False, together=True)

    async def run() -> list[float]:
        async with asyncio.timeout(10):
            return (await sampler.compute_logprobs([1, 2, 3]))[1:].tolist()

    assert asyncio.run(run()) == [-1.0, -1.0]


def test_calls_under_way_end_with_the_reason_where_the_model_cant_be_made_again(local_server, tmp_path: Path):
    async def run() -> None:
        async with proxy_to(local_server.base_url) as proxy:
            made = backend(proxy.base_url, replay_steps=1)
            client = await made.prepare(MODEL, tmp_path, 0, deterministic=True)
            scored, trained = await client.sampling_client(), await client.sampling_client()
            await steps(client, 0, 2)
            waits = Fault(path=RESULT, how="delay", seconds=60.0, times=len(PROMPTS))
            proxy.faults.append(waits)
            scoring = asyncio.ensure_future(together(client, scored))
            await waits.struck.wait()
            proxy.faults.append(Fault(path=DRAWN, how="status", status=404))
            async with asyncio.timeout(40):
                for wave in (together(client, trained), scoring):
                    with pytest.raises(BackendError, match="more than are repeated"):
                        await wave
            await made.teardown(client)

    asyncio.run(run())


@pytest.mark.parametrize("seed", [3, -1])
def test_a_call_is_named_as_the_server_knows_it(seed: int):
    params = SamplingParams(max_tokens=4, seed=seed)
    drawing = Drawing(prompt=[1, 2], params=attrs.evolve(params, seed=seed % 2**63), n=2)
    assert key_of([1, 2], params, 2) == drawing.key


@pytest.mark.parametrize(("deterministic", "warned"), [(True, 1), (False, 0)])
def test_a_deterministic_run_is_warned_of_a_server_that_computes_its_samples_beside_others(
    local_server, tmp_path: Path, deterministic: bool, warned: int
):
    told: list[str] = []

    class Said:
        def warning(self, event: str, **_facts: Any) -> None:
            told.append(event)

        info = debug = error = warning

    async def run(*faults: Fault) -> int:
        told.clear()
        async with proxy_to(local_server.base_url) as proxy:
            proxy.faults.extend(faults)
            made = backend(proxy.base_url)
            client = await made.prepare(MODEL, tmp_path, 0, deterministic=deterministic, log=Said())
            await made.teardown(client)
        assert client.facts["deterministic"] is (deterministic and not faults)
        return told.count("server.not_deterministic")

    served = {"supported_models": [{"model_name": MODEL.name}], "evsys_deterministic": False}
    assert asyncio.run(run(Fault(path="/get_server_capabilities", how="answer", body=served))) == warned
    assert asyncio.run(run()) == 0
