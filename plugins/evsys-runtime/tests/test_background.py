"""Blocking work beside the event loop: its result, its failure, and being left alone."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from evsys_runtime.background import in_background, to_the_end

HERE = contextvars.ContextVar("here", default="nowhere")


def test_the_result_comes_back_and_the_context_goes_along():
    async def inside():
        HERE.set("inside")
        return await in_background(lambda a, *, b: (a, b, HERE.get()), 1, b=2)

    assert asyncio.run(inside()) == (1, 2, "inside")


@pytest.mark.parametrize("failure", [ValueError("odd"), SystemExit(3)])
def test_a_failure_comes_back_as_it_is(failure):
    def fails():
        raise failure

    async def told():
        with pytest.raises(type(failure)) as caught:
            await in_background(fails)
        return caught.value

    assert asyncio.run(told()) is failure


def test_whoever_is_cancelled_does_not_wait_for_work_that_hangs():
    started, over = threading.Event(), threading.Event()

    def hangs():
        started.set()
        over.wait(60)

    async def impatient():
        waiting = asyncio.create_task(in_background(hangs))
        await asyncio.to_thread(started.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(impatient())  # also closes the loop, which would wait for the threads of an executor
    assert not over.is_set()
    over.set()


def test_what_must_not_be_left_half_done_is_finished_and_the_cancellation_comes_after():
    started, go_on, done = threading.Event(), threading.Event(), []

    def makes():
        started.set()
        go_on.wait(60)
        return "made"

    async def patient():
        done.append(await to_the_end(makes))
        done.append(asyncio.current_task().cancelling())
        await asyncio.sleep(0)
        done.append("never")

    async def whole():
        working = asyncio.create_task(patient())
        await asyncio.to_thread(started.wait, 60)
        working.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(whole())
    assert done == ["made", 1]


def test_short_work_that_nobody_interrupts_just_comes_back():
    async def whole():
        return await to_the_end(lambda a, *, b: (a, b), 1, b=2)

    assert asyncio.run(whole()) == (1, 2)
