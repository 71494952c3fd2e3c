import asyncio

from evsys_server.promises import Promises, failure, json_answer


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
