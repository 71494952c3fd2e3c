"""Coroutines that run on another thread's event loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from evsys.errors import RolloutError
from evsys_rollouts_harbor import loops
from evsys_rollouts_harbor.loops import OtherLoop


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_it_runs_there_and_its_result_comes_here(other):
    async def where():
        return asyncio.get_running_loop()

    async def main():
        return await OtherLoop(other).run(where)

    assert asyncio.run(main()) is other


def test_what_it_raises_is_raised_here(other):
    async def fail():
        raise KeyError("there")

    async def main():
        await OtherLoop(other).run(fail)

    with pytest.raises(KeyError, match="there"):
        asyncio.run(main())


def test_a_cancellation_crosses_over_and_its_end_is_waited_for(other):
    began, ended = threading.Event(), []

    async def wait():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    async def main():
        task = asyncio.create_task(OtherLoop(other).run(wait))
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())
    assert ended == [True]


def test_one_that_goes_on_when_cancelled_is_left_after_a_while(other, monkeypatch):
    monkeypatch.setattr(loops, "GRACE_SECONDS", 0.05)
    began, let_go = threading.Event(), asyncio.Event()

    async def stubborn():
        began.set()
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            await let_go.wait()

    async def main():
        task = asyncio.create_task(OtherLoop(other).run(stubborn))
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.wait([task])
        other.call_soon_threadsafe(let_go.set)
        return task.cancelled()

    assert asyncio.run(main())


def test_one_that_cancels_itself_is_a_failure_and_no_cancellation(other):
    async def give_up():
        raise asyncio.CancelledError

    async def main():
        await OtherLoop(other).run(give_up)

    with pytest.raises(RolloutError, match="cancelled from inside"):
        asyncio.run(main())


def test_a_loop_that_is_closed_says_so():
    loop = asyncio.new_event_loop()
    loop.close()

    async def nothing():
        return None

    async def main():
        await OtherLoop(loop).run(nothing)

    with pytest.raises(RolloutError, match="closed"):
        asyncio.run(main())
