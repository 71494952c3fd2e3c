"""A score that several arms want is made once, and by the next one where the first fails to."""

from __future__ import annotations

import asyncio

import pytest

from evsys.types import EvaluationResult
from evsys_runtime.evaluation.shared_scores import SharedScores


def result(status="completed", seconds=1.0):
    return EvaluationResult(benchmark="val", split="val", step=0, status=status, seconds=seconds)


class Maker:
    """Makes a result when it is let, and counts."""

    def __init__(self, status="completed"):
        self.go = asyncio.Event()
        self.made = 0
        self.status = status

    async def __call__(self):
        await self.go.wait()
        self.made += 1
        if self.status == "raised":
            raise OSError("no disk")
        return result(self.status)


def shared(*run_ids):
    scores = SharedScores()
    for run_id in run_ids:
        scores.enter(run_id, ["key"])
    return scores


def test_the_first_of_the_plan_makes_it_whoever_asks_first():
    async def main():
        scores, a, b = shared("a", "b"), Maker(), Maker()
        b.go.set()
        later = asyncio.create_task(scores.score("key", "b", b))
        await asyncio.sleep(0)
        first = asyncio.create_task(scores.score("key", "a", a))
        await asyncio.sleep(0)
        assert not later.done()
        a.go.set()
        assert await first is None
        assert await later is scores.known("key") is not None
        assert (a.made, b.made) == (1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["failed", "cancelled", "raised", "never came so far"])
def test_the_next_one_tries_where_the_first_fails(how):
    async def main():
        scores, a, b, c = shared("a", "b", "c"), Maker(), Maker(), Maker()
        others = [asyncio.create_task(scores.score("key", name, make)) for name, make in (("b", b), ("c", c))]
        await asyncio.sleep(0)
        if how == "never came so far":
            scores.leave("a")
        else:
            a.status = how
            first = asyncio.create_task(scores.score("key", "a", a))
            await asyncio.sleep(0)
            if how == "cancelled":
                first.cancel()
            a.go.set()
            await asyncio.gather(first, return_exceptions=True)
        b.go.set()
        mine, others_ = await asyncio.gather(*others)
        assert mine is None
        assert others_ is scores.known("key")
        assert (b.made, c.made) == (1, 0)

    asyncio.run(main())


def test_what_is_known_is_neither_made_nor_waited_for():
    async def main():
        scores, a, b = shared("a"), Maker(), Maker()
        a.go.set()
        await scores.score("key", "a", a)
        scores.enter("b", ["key"])
        assert await scores.score("key", "b", b) is scores.known("key")
        assert b.made == 0

    asyncio.run(main())


def test_arms_that_want_something_else_wait_for_nobody():
    async def main():
        scores, b = shared("a"), Maker()
        scores.enter("b", ["other"])
        b.go.set()
        assert await scores.score("other", "b", b) is None
        assert scores.known("key") is None

    asyncio.run(main())


def test_where_nobody_said_that_they_want_it_the_first_that_comes_makes_it():
    async def main():
        scores, a, b, c = SharedScores(retry_failed=False), Maker(), Maker("failed"), Maker()
        first = asyncio.create_task(scores.score("key", "c", a))
        await asyncio.sleep(0)
        second = asyncio.create_task(scores.score("key", "a", b))
        third = asyncio.create_task(scores.score("key", "b", c))
        await asyncio.sleep(0)
        first.cancel()
        for maker in (a, b, c):
            maker.go.set()
        found = await asyncio.gather(first, second, third, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1] is None
        assert found[2] is scores.known("key")
        assert found[2].status == "failed"
        assert (a.made, b.made, c.made) == (0, 1, 0)

    asyncio.run(main())


def test_a_score_that_is_on_record_is_made_by_nobody():
    async def main():
        scores, made = shared("a"), Maker()
        scores.remember("key", result(seconds=1.0))
        scores.remember("key", result(seconds=2.0))
        assert (await scores.score("key", "a", made)).seconds == 1.0
        assert made.made == 0

    asyncio.run(main())
