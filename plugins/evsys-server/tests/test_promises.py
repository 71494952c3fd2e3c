import asyncio
import json

import pytest

from evsys.errors import StoreError
from evsys_server.promises import Promises, failure, json_answer


class Log:
    def __init__(self):
        self.told = []

    def error(self, event, **facts):
        self.told.append((event, facts["request"], facts["reason"]))


def answered(promises: Promises, number: int, size: int = 0) -> None:
    promise = promises.open(str(number), "s")
    promise.settle(json_answer({"x": "." * size}))
    promises.fetched(promise)


def test_the_oldest_fetched_answers_are_forgotten():
    promises = Promises(keep=3)
    for number in range(10):
        answered(promises, number)
    assert [n for n in range(10) if promises.find(str(n))] == [7, 8, 9]
    assert promises.outstanding == 0


def test_fetched_answers_are_bounded_in_bytes_too():
    promises = Promises(keep_bytes=3000)
    for number in range(10):
        answered(promises, number, 1000)
    assert [n for n in range(10) if promises.find(str(n))] == [8, 9]


def test_an_answer_larger_than_the_bound_can_be_fetched_again():
    promises = Promises(keep_bytes=10)
    answered(promises, 1, 1000)
    assert promises.find("1") is not None


def test_what_nobody_fetched_is_kept():
    promises = Promises(keep=2)
    waiting = promises.open("w", "s")
    waiting.settle(json_answer({}))
    for number in range(5):
        answered(promises, number)
    assert promises.find("w") is waiting
    assert promises.outstanding == 1


def test_fetching_twice_counts_once():
    promises = Promises(keep=3)
    promise = promises.open("1", "s")
    promise.settle(json_answer({}))
    promises.fetched(promise)
    promises.fetched(promise)
    answered(promises, 2)
    assert promises.outstanding == 0


def test_only_the_first_end_counts():
    promise = Promises().open("1", "s")
    promise.settle(failure("first", "user"))
    promise.settle(json_answer({}))
    assert promise.answer.failed


def test_waiting_ends_in_time_or_with_the_answer():
    async def main():
        promise = Promises().open("1", "s")
        early = await promise.wait(0.01)
        waiters = [asyncio.create_task(promise.wait(10)) for _ in range(3)]
        await asyncio.sleep(0)
        promise.settle(json_answer({}))
        return early, [await waiter for waiter in waiters]

    early, late = asyncio.run(main())
    assert early is None
    assert all(answer is not None for answer in late)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RuntimeError("no card"), "RuntimeError: no card"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "the backend cancelled its own work unexpectedly"),
    ],
)
def test_however_a_backend_fails_whoever_waits_is_told(raised, said):
    async def work():
        raise raised

    async def main():
        promise = Promises(log=Log()).open("1", "s")
        await asyncio.create_task(promise.fulfil(work()))
        return promise, await promise.wait(0)

    promise, answer = asyncio.run(main())
    assert json.loads(answer.body) == {"error": said, "category": "server"}
    assert [event[0] for event in promise.log.told] == ["request.failed"]


def test_a_cancellation_that_was_asked_for_passes_and_leaves_the_answer_to_who_asked():
    async def main():
        promise = Promises(log=Log()).open("1", "s")
        task = asyncio.create_task(promise.fulfil(asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), promise.answer, promise.log.told

    assert asyncio.run(main()) == (True, None, [])


def test_one_failure_of_many_requests_is_logged_once():
    async def work(error):
        raise error

    async def main():
        log = Log()
        promises = Promises(log=log)
        shared, other = StoreError("the disk is full"), StoreError("the disk is full")
        for number, error in enumerate([shared, shared, other, shared]):
            promise = promises.open(str(number), "s")
            await promise.fulfil(work(error))
            assert promise.answer.failed
        return [request for _, request, _ in log.told]

    assert asyncio.run(main()) == ["0", "2"]
