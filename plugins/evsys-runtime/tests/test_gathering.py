import asyncio

from evsys_runtime.gathering import Gathering, call_when_cancelled


def gathered(work):
    batches = []

    async def main():
        await work(Gathering(batches.append))
        await asyncio.sleep(0.01)

    asyncio.run(main())
    return batches


async def call(gathering, number, *, turns=0):
    for _ in range(turns):
        await asyncio.sleep(0)
    gathering.add(number)
    gathering.watch()


def test_calls_of_tasks_that_are_started_together_are_one_batch_in_their_order():
    async def work(gathering):
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(call(gathering, number, turns=number % 3))

    [batch] = gathered(work)
    assert batch == sorted(range(50), key=lambda number: number % 3)


def test_a_call_that_comes_later_is_of_another_batch():
    async def work(gathering):
        await call(gathering, 1)
        await call(gathering, 2, turns=20)

    assert gathered(work) == [[1], [2]]


def test_what_nobody_watches_waits_for_who_does():
    async def work(gathering):
        gathering.add(1)
        await asyncio.sleep(0.01)
        assert gathering.waiting == [1]
        await call(gathering, 2)

    assert gathered(work) == [[1, 2]]


def test_a_batch_is_given_up_once_nobody_waits_for_any_of_it():
    async def given_up(ends):
        told = []
        outcomes = [asyncio.get_running_loop().create_future() for _ in ends]
        call_when_cancelled(outcomes, lambda: told.append("given up"))
        for outcome, answered in zip(outcomes, ends, strict=True):
            assert told == []
            if answered:
                outcome.set_result(None)
            else:
                outcome.cancel()
            await asyncio.sleep(0)
        return told

    assert asyncio.run(given_up([False, False])) == ["given up"]
    assert asyncio.run(given_up([True, False])) == []
