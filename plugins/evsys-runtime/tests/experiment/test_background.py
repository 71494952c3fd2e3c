"""Blocking work beside the event loop: its result, its failure, and being left alone."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from evsys_runtime.experiment.background import in_background

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
