"""Calls that come while a batch is sampled: one batch each without `coalesce`, one batch together with it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from evsys.types import ModelSpec
from evsys_backend_local.backend import LocalBackend
from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.threads import DaemonExecutor
from evsys_backend_local.sampling import SampleQueue

SNAPSHOT = object()


class Engine:
    """Answers requests with themselves; its first batch computes until it is let go on."""

    def __init__(self, fail=False):
        self.batches = []
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.fail = fail

    def sample(self, snapshot, requests, *, abort):
        self.batches.append(list(requests))
        if len(self.batches) == 1:
            self.started.set()
            assert self.go_on.wait(20)
            if self.fail:
                raise ValueError("the first batch failed")
        return list(requests)


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def ask_while_busy(engine, *, coalesce, later):
    """One call first; `later` calls while it is answered, each in its own turn of the loop, far apart."""
    executor = DaemonExecutor(1, "test")
    queue = SampleQueue(engine, executor, Abort(), coalesce=coalesce)
    first = asyncio.ensure_future(queue.ask(SNAPSHOT, "first"))
    await asyncio.to_thread(engine.started.wait, 20)
    others = []
    for number in range(later):
        others.append(asyncio.ensure_future(queue.ask(SNAPSHOT, number)))
        await turns(10)
    engine.go_on.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    executor.shutdown()
    return answers


@pytest.mark.parametrize("coalesce", [False, True])
def test_every_call_gets_its_own_answer(coalesce):
    answers = asyncio.run(ask_while_busy(Engine(), coalesce=coalesce, later=4))
    assert answers == ["first", 0, 1, 2, 3]


def test_calls_that_come_far_apart_are_batches_of_their_own_by_default():
    engine = Engine()
    asyncio.run(ask_while_busy(engine, coalesce=False, later=3))
    assert engine.batches == [["first"], [0], [1], [2]]


def test_with_coalesce_calls_that_come_while_a_batch_is_computed_are_one_batch():
    engine = Engine()
    asyncio.run(ask_while_busy(engine, coalesce=True, later=3))
    assert engine.batches == [["first"], [0, 1, 2]]


def test_with_coalesce_calls_go_on_after_a_batch_that_failed():
    engine = Engine(fail=True)
    failed, *others = asyncio.run(ask_while_busy(engine, coalesce=True, later=2))
    assert isinstance(failed, ValueError)
    assert others == [0, 1]


@pytest.mark.parametrize(
    ("params", "told", "expected"),
    [
        ({}, {}, False),
        ({}, {"deterministic": True}, False),
        ({}, {"deterministic": False}, True),
        ({"coalesce": False}, {"deterministic": False}, False),
        ({"coalesce": True}, {"deterministic": True}, True),
    ],
)
def test_calls_are_coalesced_where_the_run_need_not_repeat_or_its_file_says_so(
    tmp_path, params, told, expected
):
    async def go():
        backend = LocalBackend(**params)
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), tmp_path, 0, **told)
        facts = client.facts
        await backend.teardown(client)
        return facts["coalesce"]

    assert asyncio.run(go()) is expected
