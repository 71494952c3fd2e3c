"""What the client does when its service misbehaves, against a real server on loopback."""

import asyncio
import contextlib
import datetime as dt
import traceback
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from faulty_service import Faulty, completion, served

from evsys.errors import BackendError
from evsys.types import Message, SamplingParams
from evsys_runtime.accounting.breaker import ServiceDownError
from evsys_std.inference.calls import _retry_after
from evsys_std.inference.openai_compatible import OpenAICompatible

ASK = (Message(role="user", content="hi"),)


async def ask(client: Any) -> str:
    (found,) = await client.generate(ASK, SamplingParams(max_tokens=5))
    return found.message.content


def status(code: int, text: str = "busy", **headers: str):
    return lambda: web.Response(status=code, text=text, headers=headers)


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529])
def test_a_status_that_passes_is_tried_again(asked, code):
    service = Faulty(status(code), status(code), completion())
    said, clock = asked(service, ask)
    assert said == "hello"
    assert len(service.bodies) == 3
    assert len(clock.slept) == 2


def test_a_lost_connection_is_tried_again(asked):
    service = Faulty("drop", completion())
    assert asked(service, ask)[0] == "hello"
    assert len(service.bodies) == 2


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 413, 422])
def test_a_refusal_is_final(asked, code):
    service = Faulty(status(code, "no such thing"))
    with pytest.raises(BackendError, match=f"answered {code}: no such thing") as caught:
        asked(service, ask)
    assert len(service.bodies) == 1
    assert (caught.value.facts["status"], caught.value.facts["attempts"]) == (code, 1)
    assert not isinstance(caught.value.__cause__, OSError)


def test_a_spent_quota_is_final_though_its_status_is_that_of_a_busy_service(asked):
    service = Faulty(status(429, '{"error": {"code": "insufficient_quota", "message": "pay"}}'))
    with pytest.raises(BackendError, match="insufficient_quota"):
        asked(service, ask)
    assert len(service.bodies) == 1


def test_a_failure_inside_an_answer_with_status_200_is_one(asked):
    service = Faulty({"error": {"code": 502, "message": "upstream"}}, completion())
    assert asked(service, ask)[0] == "hello"
    assert len(service.bodies) == 2


def test_retries_end_and_the_failure_says_how_many_there_were(asked):
    service = Faulty(status(503, "down"))
    with pytest.raises(BackendError, match=r"after 3 attempts.*answered 503: down") as caught:
        asked(service, ask, max_retries=2)
    assert len(service.bodies) == 3
    assert isinstance(caught.value.__cause__, OSError)  # a rollout that fails so may be tried again


def test_waits_grow_and_differ_between_callers(asked):
    waits = [asked(Faulty(status(503)), failing, max_retries=6)[1].slept for _ in range(8)]
    for each in waits:
        assert len(each) == 6
        assert all(0.5 <= wait / 2**place <= 1 for place, wait in enumerate(each))
    assert len({each[0] for each in waits}) > 1


async def failing(client: Any) -> None:
    with pytest.raises(BackendError):
        await ask(client)


def test_retry_after_is_waited_for(asked):
    _, clock = asked(Faulty(status(429, **{"Retry-After": "7"}), completion()), ask)
    assert 7 <= clock.slept[0] <= 7.5


def test_a_wait_longer_than_the_call_may_take_ends_it_at_once(asked):
    service = Faulty(status(429, **{"Retry-After": "900"}))
    with pytest.raises(BackendError, match="asks to wait 900 seconds"):
        asked(service, ask, timeout_seconds=60)
    assert len(service.bodies) == 1


def test_retry_after_is_a_number_or_a_date():
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=90)
    assert _retry_after("2.5") == 2.5
    assert 80 < (_retry_after(format_datetime(soon, usegmt=True)) or 0) <= 90
    assert _retry_after(format_datetime(soon - dt.timedelta(days=1))) == 0
    assert [_retry_after(value) for value in (None, "soon", "inf", "nan")] == [None] * 4


def test_a_service_that_is_silent_is_given_up_at_the_deadline(asked):
    async def work(client: Any) -> None:
        with pytest.raises(BackendError, match=r"no answer within 0\.1 seconds"):
            await ask(client)

    class Silent(Faulty):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            return web.Response()

    asked(Silent(), work, timeout_seconds=0.1)


def test_the_key_is_sent_and_told_nowhere(asked, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", "sk-very-secret")
    service = Faulty(status(401, 'wrong key: "sk-very-secret"'))
    with pytest.raises(BackendError, match=r"wrong key: .\[key\]") as caught:
        asked(service, ask, api_key_env="SERVICE_KEY")
    assert service.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "api_key_env" in str(caught.value)
    assert "sk-very-secret" not in "".join(traceback.format_exception(caught.value))
    assert "sk-very-secret" not in repr(caught.value.facts)


def test_a_long_body_is_told_in_part(asked):
    with pytest.raises(BackendError) as caught:
        asked(Faulty(status(400, "x" * 10_000)), ask)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"choices": []}, "no choices"),
        ({"choices": [{"text": "hi"}]}, "no message"),
        (status(200, "<html>"), "no JSON object: <html>"),
        (status(200, ""), "an empty body"),
        ([1], "no JSON object"),
    ],
)
def test_what_is_no_chat_completion_is_an_error(asked, answer, told):
    with pytest.raises(BackendError, match=told):
        asked(Faulty(answer), ask)


def test_long_conversations_are_sent_without_a_warning(asked):
    async def work(client: Any) -> str:
        (found,) = await client.generate(
            (Message(role="user", content="x" * 2_000_000),), SamplingParams(max_tokens=5)
        )
        return found.message.content

    service = Faulty()
    original = service.answer

    async def big(request: web.Request) -> web.StreamResponse:
        return await original(request.clone(client_max_size=2**24))

    service.answer = big
    assert asked(service, work)[0] == "hello"


def test_no_connection_outlives_the_calls(asked):
    async def work(client: Any) -> dict[Any, Any]:
        await asyncio.gather(*(ask(client) for _ in range(5)))
        return client.service._sessions

    assert asked(Faulty(), work)[0] == {}


# --- a service that is down for long ---------------------------------------------------------------------------------


def with_breaker(work):
    """`work(client, breaker)` where the breaker goes by the clock of the waits."""

    async def run(client):
        breaker = client.service._breaker
        breaker.clock = client.service.clock
        return await work(client, breaker)

    return run


async def until_open(client, breaker):
    for _ in range(30):
        with contextlib.suppress(BackendError):
            await ask(client)
        if breaker.is_open:
            return
    raise AssertionError("it never opened")


def test_a_service_that_fails_for_long_is_not_asked_any_more_until_it_may_be_back(asked):
    service = Faulty(*[status(503)] * 200)

    @with_breaker
    async def work(client, breaker):
        await until_open(client, breaker)
        made = len(service.bodies)
        with pytest.raises(
            ServiceDownError, match=r"http://127.0.0.1:\d+\S* wasn't asked: it has failed for .* answered 503"
        ):
            await ask(client)
        assert len(service.bodies) == made
        service.answers = [completion()]
        client.service.clock.time += breaker.settings.longest_cool_down
        assert await ask(client) == "hello"
        assert not breaker.is_open

    asked(service, work)


def test_the_first_call_that_fails_for_good_has_found_out_that_the_service_is_down(asked):
    @with_breaker
    async def work(client, breaker):
        with pytest.raises(BackendError, match="after 7 attempts"):
            await ask(client)
        assert breaker.is_open

    for _ in range(8):  # waits are random
        asked(Faulty(*[status(503)] * 200), work)


def test_a_call_under_way_gives_up_its_retries_when_others_find_the_service_down(asked):
    service = Faulty(*[status(503)] * 200)

    @with_breaker
    async def work(client, breaker):
        await until_open(client, breaker)
        made = len(service.bodies)
        calls = await asyncio.gather(*(ask(client) for _ in range(20)), return_exceptions=True)
        assert {type(call) for call in calls} == {ServiceDownError}
        assert len(service.bodies) == made

    asked(service, work, max_retries=20)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_service_that_refuses_single_requests_is_not_down(asked, code):
    service = Faulty(*[status(code)] * 400)

    @with_breaker
    async def work(client, breaker):
        with pytest.raises(AssertionError, match="never opened"):
            await until_open(client, breaker)

    asked(service, work)


@pytest.mark.parametrize(
    "answer",
    [
        *map(status, (301, 401, 403, 404, 429)),
        status(429, '{"error": {"code": "insufficient_quota"}}'),
        status(200, "<html>log in</html>"),
        status(200, "x" * 4_200_000),
    ],
)
def test_a_service_that_refuses_every_request_is_down_after_twenty_calls(asked, answer):
    service = Faulty(answer)

    @with_breaker
    async def work(client, breaker):
        await until_open(client, breaker)
        made = len(service.bodies)
        with pytest.raises(ServiceDownError):
            await ask(client)
        assert len(service.bodies) == made <= 35
        await breaker.look_again()
        assert breaker.is_open

    asked(service, work)


def test_refusals_with_answers_between_them_open_nothing(asked):
    service = Faulty(*[status(403), completion()] * 50)

    @with_breaker
    async def work(client, breaker):
        for _ in range(100):
            with contextlib.suppress(BackendError):
                await ask(client)
        assert not breaker.is_open

    asked(service, work)


def test_an_answer_without_end_is_cut_off(asked):
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
        return response

    service = Faulty()
    service.answer = endless
    with pytest.raises(BackendError, match="its answer is longer than 4 MiB"):
        asked(service, ask)


def test_requests_go_through_the_proxy_of_the_environment(asked, monkeypatch):
    proxy = Faulty()

    async def work(client: Any) -> str:
        async with proxy.running() as address:
            monkeypatch.setenv("http_proxy", address.removesuffix("/v1").replace("//", "//user:p%40ss@"))
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            there = OpenAICompatible(model="m", base_url="http://models.invalid/v1")
            return await ask(client) + await ask(there)

    service = Faulty(completion("direct "))
    assert asked(service, work)[0] == "direct hello"
    assert (len(service.bodies), len(proxy.bodies)) == (1, 1)
    assert proxy.headers[0]["Host"] == "models.invalid"
    assert proxy.headers[0]["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


def test_the_probe_asks_the_last_question_again(asked):
    service = Faulty(*[status(503)] * 200)

    @with_breaker
    async def work(client, breaker):
        await until_open(client, breaker)
        await breaker.look_again()
        assert breaker.is_open
        service.answers = [completion()]
        await breaker.look_again()
        assert not breaker.is_open
        assert service.bodies[-1] == service.bodies[-2]

    asked(service, work)


def test_a_call_that_is_never_answered_counts_as_a_failure_and_one_that_waits_for_its_turn_does_not():
    async def silent(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> list[int]:
        failures = []
        async with served(silent) as url:
            client = OpenAICompatible(model="m", base_url=url, timeout_seconds=0.1, max_concurrent=1)
            for turn in (client._limiter.slot(), contextlib.nullcontext()):
                async with turn:
                    with pytest.raises(BackendError, match="no answer within"):
                        await ask(client)
                failures.append(client.service._breaker._failures)
        return failures

    assert asyncio.run(main()) == [0, 1]


def test_silence_until_callers_give_up_opens_the_breaker(asked):
    class Silent(Faulty):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            self.bodies.append(None)
            if len(self.bodies) == 5:
                all_asked.set()
            await asyncio.Event().wait()
            return web.Response()

    all_asked = asyncio.Event()

    @with_breaker
    async def work(client, breaker):
        calls = [asyncio.create_task(ask(client)) for _ in range(5)]
        await all_asked.wait()
        breaker.clock.time += breaker.settings.open_after
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert breaker.is_open

    asked(Silent(), work)
