import asyncio

import pytest

from evsys_server.errors import RefusedError
from evsys_server.promises import Promise, json_answer
from evsys_server.turns import Turns


class Requests:
    """Requests of one model, and what ran in which order."""

    def __init__(self, **options) -> None:
        self.turns = Turns(first=1, **options)
        self.ran: list[int] = []
        self.promises: dict[int, Promise] = {}

    def send(self, number: int, work=None, size: int = 0) -> Promise:
        async def run():
            self.ran.append(number)
            if work is not None:
                await work()
            return json_answer({"n": number})

        self.turns.check(number, size)
        promise = self.promises[number] = Promise(str(number), "s")
        self.turns.add(number, promise, run, size)
        return promise


def test_requests_run_in_order_whatever_order_they_come_in():
    async def main():
        requests = Requests()
        for number in (3, 2, 5, 1, 4):
            requests.send(number)
        for promise in requests.promises.values():
            await promise.wait(5)
        return requests.ran

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]


def test_one_runs_at_a_time():
    async def main():
        requests, inside, most = Requests(), 0, 0

        async def work():
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

        for number in range(1, 6):
            requests.send(number, work)
        await requests.promises[5].wait(5)
        return most

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no"), b"ValueError: no"),
        (SystemExit(3), b"SystemExit: 3"),
        (asyncio.CancelledError(), b"cancelled its own work"),
    ],
)
def test_a_request_that_fails_has_had_its_turn(raised, said):
    async def main():
        requests = Requests()

        async def fail():
            raise raised

        first, second = requests.send(1, fail), requests.send(2)
        return await first.wait(5), await second.wait(5)

    first, second = asyncio.run(main())
    assert first.failed
    assert said in first.body
    assert not second.failed


def test_what_came_after_a_request_that_never_comes_fails_and_the_order_goes_on():
    async def main():
        requests = Requests(patience=0.01)
        late = [requests.send(number) for number in (2, 3)]
        answers = [await promise.wait(5) for promise in late]
        after = await requests.send(4).wait(5)
        with pytest.raises(RefusedError) as gone:
            requests.send(1)
        return answers, after, requests.ran, gone.value.status

    answers, after, ran, status = asyncio.run(main())
    assert all(b"request 1 of this model never came" in answer.body for answer in answers)
    assert (after.failed, ran, status) == (False, [4], 410)


def test_a_request_that_comes_in_time_stops_the_wait():
    async def main():
        requests = Requests(patience=0.05)
        requests.send(2)
        requests.send(1)
        await requests.promises[2].wait(5)
        await asyncio.sleep(0.1)
        return requests.ran, requests.turns.next

    assert asyncio.run(main()) == ([1, 2], 3)


@pytest.mark.parametrize("bound", [{"most": 2}, {"most_bytes": 20}])
def test_more_than_may_wait_are_sent_away_but_never_the_next(bound):
    async def main():
        requests = Requests(**bound)
        requests.send(2, size=10)
        requests.send(3, size=10)
        with pytest.raises(RefusedError) as full:
            requests.send(4, size=10)
        requests.send(1, size=10)
        await requests.promises[3].wait(5)
        return full.value.status, requests.ran

    assert asyncio.run(main()) == (429, [1, 2, 3])


def test_closing_fails_what_waits_and_what_runs():
    async def main():
        requests, started = Requests(), asyncio.Event()

        async def long():
            started.set()
            await asyncio.sleep(60)

        running, waiting = requests.send(1, long), requests.send(2)
        await started.wait()
        await requests.turns.close("the session has ended")
        with pytest.raises(RefusedError, match="has ended"):
            requests.send(3)
        return running.answer, waiting.answer

    running, waiting = asyncio.run(main())
    assert b"has ended" in running.body
    assert b"has ended" in waiting.body
