import asyncio
import gc
import heapq
import threading
from collections.abc import Awaitable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_runtime.accounting.limiter import Limiter, Limits, shared_limiter


class FakeClock:
    """Time that jumps to the next sleeper when all tasks wait."""

    def __init__(self) -> None:
        self.time = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleepers, (self.time + seconds, self._count, event))
        await event.wait()

    async def run(self, until_done: Awaitable[object]) -> None:
        waiting = asyncio.ensure_future(until_done)
        while not waiting.done():
            for _ in range(50):
                await asyncio.sleep(0)
            if waiting.done() or not self._sleepers:
                break
            self.time, _, event = heapq.heappop(self._sleepers)
            event.set()
        await waiting


def starts_of(limits: Limits, calls: list[tuple[int, float]]) -> list[tuple[float, int]]:
    """When each of the calls, given as (tokens, seconds), starts when all come at once."""
    clock = FakeClock()
    limiter = Limiter(limits, clock=clock)
    starts: list[tuple[float, int]] = []

    async def call(tokens: int, seconds: float) -> None:
        async with limiter.slot(tokens):
            starts.append((clock.now(), tokens))
            if seconds:
                await clock.sleep(seconds)

    async def main() -> None:
        await clock.run(asyncio.gather(*(call(*one) for one in calls)))

    asyncio.run(main())
    assert (limiter.running, limiter.waiting) == (0, 0)
    return starts


def test_the_third_of_two_calls_a_minute_waits_for_the_minute_of_the_first():
    assert [at for at, _ in starts_of(Limits(requests_per_minute=2), [(0, 0)] * 5)] == [0, 0, 60, 60, 120]


def test_calls_wait_until_their_tokens_fit_into_the_minute():
    starts = starts_of(Limits(tokens_per_minute=100), [(60, 0), (40, 0), (50, 0), (60, 0)])
    assert starts == [(0, 60), (0, 40), (60, 50), (120, 60)]


def test_a_call_above_the_limit_of_tokens_goes_alone_and_not_never():
    assert starts_of(Limits(tokens_per_minute=10), [(5, 0), (50, 0), (5, 0)]) == [(0, 5), (60, 50), (120, 5)]


def test_no_more_calls_run_at_once_than_allowed():
    assert [at for at, _ in starts_of(Limits(concurrency=2), [(0, 5)] * 5)] == [0, 0, 5, 5, 10]


def test_what_a_call_really_took_takes_the_place_of_the_estimate():
    clock = FakeClock()
    limiter = Limiter(Limits(tokens_per_minute=100), clock=clock)

    async def main() -> float:
        async with limiter.slot(90) as slot:
            slot.used(10)
        async with limiter.slot(90):
            return clock.now()

    assert asyncio.run(main()) == 0


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=25),
    requests=st.integers(1, 6),
    tokens=st.integers(1, 100),
    concurrency=st.integers(1, 4),
)
def test_no_sixty_seconds_hold_more_than_the_limits_and_the_order_is_kept(
    calls, requests, tokens, concurrency
):
    limits = Limits(requests_per_minute=requests, tokens_per_minute=tokens, concurrency=concurrency)
    starts = starts_of(limits, [(count, float(seconds)) for count, seconds in calls])
    assert [count for _, count in starts] == [count for count, _ in calls]
    for place, (at, _) in enumerate(starts):
        window = [count for when, count in starts[place:] if when < at + 60]
        assert len(window) <= requests
        assert sum(window) <= tokens or len([count for count in window if count]) <= 1


def test_a_caller_that_is_cancelled_while_it_waits_holds_up_nobody():
    limiter = Limiter(Limits(concurrency=1))

    async def enter() -> None:
        async with limiter.slot(1):
            pass

    async def main() -> None:
        async with limiter.slot(1):
            first, second = asyncio.create_task(enter()), asyncio.create_task(enter())
            await asyncio.sleep(0)
            assert limiter.waiting == 2
            first.cancel()
            await asyncio.wait([first])
            assert first.cancelled()
        await asyncio.wait_for(second, 5)

    asyncio.run(main())
    assert (limiter.running, limiter.waiting) == (0, 0)


def test_a_call_that_fails_gives_its_place_back():
    limiter = Limiter(Limits(concurrency=1))

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with limiter.slot():
                _ = 1 / 0
        async with limiter.slot():
            assert limiter.running == 1

    asyncio.run(asyncio.wait_for(main(), 5))
    assert limiter.running == 0


def test_event_loops_of_several_threads_share_a_limiter():
    limiter = Limiter(Limits(concurrency=1))
    running, most = 0, 0

    async def one() -> None:
        nonlocal running, most
        async with limiter.slot():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    async def many() -> None:
        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(50))), 20)

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, limiter.running, limiter.waiting) == (1, 0, 0)


def test_who_names_the_same_service_shares_its_limiter_at_the_tightest_bounds():
    one = shared_limiter("a service of this test", Limits(requests_per_minute=10, concurrency=8))
    other = shared_limiter("a service of this test", Limits(requests_per_minute=20, concurrency=4))
    assert one is other
    assert one.limits == Limits(requests_per_minute=10, concurrency=4)
    assert shared_limiter("another service of this test", Limits()) is not one


def test_a_limiter_that_nobody_holds_is_forgotten():
    shared_limiter("a service that is left", Limits(concurrency=1))
    gc.collect()
    assert shared_limiter("a service that is left", Limits()).limits == Limits()


def test_a_bound_below_one_is_refused():
    with pytest.raises(ValueError, match="concurrency must be at least 1, got 0"):
        Limits(concurrency=0)
