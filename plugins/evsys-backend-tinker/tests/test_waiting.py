"""Waiting for calls: as long as their kind may take, and no longer than the server answers."""

import asyncio
import gc
from typing import Any

import pytest

from evsys.errors import BackendError
from evsys_backend_tinker.config import Deadlines
from evsys_backend_tinker.http_json import Answer, UnreachableError
from evsys_backend_tinker.waiting import Waiting
from evsys_runtime.accounting.breaker import Breaker, BreakerSettings


class Clock:
    """Time that passes by `pace` seconds at each look."""

    def __init__(self, pace: float) -> None:
        self.time = 0.0
        self.pace = pace

    def now(self) -> float:
        self.time += self.pace
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Server:
    """A server that answers as its list says, and then as the last of them."""

    base_url = "http://127.0.0.1:1"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.exhausted = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def get(self, path: str, *, seconds: float) -> Answer:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if len(self.answers) == 1:
            self.loop.call_soon_threadsafe(self.exhausted.set)
        if isinstance(answer, Exception):
            raise answer
        return Answer(status=answer, body=b"{}")


class Log:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def warning(self, event: str, **_facts: Any) -> None:
        self.events.append(event)


def waiting(
    server: Server, *, pace: float = 1.0, log: Log | None = None, dead_after: float = 10.0
) -> Waiting:
    return Waiting(
        api=server,
        deadlines=Deadlines(train=50.0, save=5.0),
        dead_after=dead_after,
        log=log,
        every=0.001,
        clock=Clock(pace),
    )


def never() -> asyncio.Future:
    return asyncio.get_running_loop().create_future()


def test_a_result_that_is_there_is_given_without_a_look_at_the_server():
    async def run() -> tuple[str, int]:
        server, done = Server(200), never()
        done.set_result("it")
        return await waiting(server).for_call(done, "train"), server.asked

    assert asyncio.run(run()) == ("it", 0)


def test_each_kind_of_call_has_its_own_deadline():
    async def run() -> None:
        made = waiting(Server(200))
        with pytest.raises(BackendError, match=r"\(save\) within 5 s.*deadlines\.save"):
            await made.for_call(never(), "save")
        with pytest.raises(BackendError, match=r"\(train\) within 50 s"):
            await made.for_call(never(), "train")

    asyncio.run(run())


@pytest.mark.parametrize("down", [UnreachableError("nothing listens there"), 503])
def test_a_server_that_stops_to_answer_ends_the_wait_long_before_the_deadline(down: Any):
    async def run() -> list[str]:
        log = Log()
        made = waiting(Server(200, down), log=log)
        with pytest.raises(BackendError, match=r"hasn't answered for \d+ s"):
            await made.for_call(never(), "train")
        assert made.clock.time < 45
        assert made.silent
        return log.events

    assert asyncio.run(run()) == ["server.silent"]


def test_a_server_that_comes_back_is_waited_for():
    async def run() -> tuple[str, list[str]]:
        log, result = Log(), never()
        server = Server(UnreachableError("nothing listens there"), UnreachableError("still"), 200)
        made = waiting(server, pace=0.5, log=log)
        task = asyncio.ensure_future(made.for_call(result, "train"))
        await server.exhausted.wait()
        await made.until_there()
        result.set_result("late")
        return await task, log.events

    assert asyncio.run(run()) == ("late", ["server.silent", "server.back"])


def test_a_long_wait_is_told_of_less_and_less_often():
    async def run() -> list[str]:
        log = Log()
        made = Waiting(
            api=Server(200), deadlines=Deadlines(train=500.0), log=log, every=0.001, clock=Clock(2.0)
        )
        with pytest.raises(BackendError):
            await made.for_call(never(), "train")
        return log.events

    assert asyncio.run(run()) == ["call.waiting"] * 5  # after 30, 60, 120, 240 and 480 seconds


def test_a_long_wait_of_many_calls_beside_each_other_is_told_of_as_that_of_one():
    async def run() -> list[str]:
        log = Log()
        made = Waiting(
            api=Server(200),
            deadlines=Deadlines(train=500.0, sample=70.0),
            log=log,
            every=0.001,
            clock=Clock(0.01),
        )
        calls = [made.for_call(never(), kind) for kind in ("train", "sample") for _ in range(20)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, BackendError) for one in found)
        return log.events

    assert asyncio.run(run()).count("call.waiting") == 5 + 2


def test_many_waits_ask_the_server_once_between_them():
    async def run() -> int:
        server = Server(200)
        made = Waiting(api=server, deadlines=Deadlines(train=0.3), every=0.1)
        await asyncio.gather(*(made.for_call(never(), "train") for _ in range(50)), return_exceptions=True)
        return server.asked

    assert asyncio.run(run()) <= 4


def test_a_blocking_call_whose_wait_is_given_up_leaves_nothing_to_complain_of():
    async def run() -> None:
        made = Waiting(api=Server(200), deadlines=Deadlines(close=0.05), every=0.01)

        def fails_late() -> None:
            import time

            time.sleep(0.2)
            raise ValueError("too late")

        with pytest.raises(BackendError, match="close"):
            await made.in_thread(fails_late, "close")
        await asyncio.sleep(0.3)

    asyncio.run(run())


def test_nobody_is_told_how_a_call_ended_that_is_awaited_no_more():
    told: list[dict] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, facts: told.append(facts))
        future = loop.create_future()
        waiting = asyncio.ensure_future(
            Waiting(api=Server(Answer(status=200, body=b"{}"))).for_call(future, "sample")
        )
        await asyncio.sleep(0)
        waiting.cancel()
        future.set_exception(RuntimeError("the client's holder is closed"))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del future, waiting
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(run())
    assert told == []


def breaker(clock: Clock) -> Breaker:
    return Breaker("a server", settings=BreakerSettings(failures=3, open_after=20.0), clock=clock)


def test_the_breaker_of_a_server_that_stays_away_opens_before_its_run_ends_and_closes_when_it_is_back():
    async def run() -> list[bool]:
        clock, seen = Clock(1.0), []
        server = Server(UnreachableError("nothing listens there"))
        waiting = Waiting(api=server, dead_after=90.0, every=0.0, clock=clock, breaker=breaker(clock))
        for _ in range(40):
            try:
                await waiting.look()
            except BackendError:
                break
            seen.append(waiting.breaker.is_open)
        server.answers = [200]
        await waiting.look()
        return [seen[0], seen[-1], waiting.breaker.is_open]

    assert asyncio.run(run()) == [False, True, False]


def test_a_server_that_answers_with_its_own_failure_counts_as_one_that_is_down():
    async def run() -> bool:
        clock = Clock(1.0)
        waiting = Waiting(api=Server(503), every=0.0, clock=clock, breaker=breaker(clock))
        for _ in range(10):
            await waiting.look()
        return waiting.breaker.is_open

    assert asyncio.run(run())


def test_a_call_that_comes_back_says_that_the_server_is_there():
    async def run() -> bool:
        clock = Clock(1.0)
        server = Server(UnreachableError("nothing listens there"))
        waiting = Waiting(api=server, dead_after=1e9, every=0.0, clock=clock, breaker=breaker(clock))
        while not waiting.breaker.is_open:
            await waiting.look()
        done = asyncio.get_running_loop().create_future()
        done.set_result("an answer")
        await waiting.for_call(done, "train")
        return waiting.breaker.is_open

    assert not asyncio.run(run())
