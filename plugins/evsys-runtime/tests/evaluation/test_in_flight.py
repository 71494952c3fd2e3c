"""Work alongside the training: what fails is raised once, and asyncio has nothing to complain of."""

import asyncio
import gc

import pytest

from evsys_runtime.evaluation.in_flight import InFlight


def test_of_several_failures_the_first_is_raised_and_none_is_left_to_asyncio(caplog):
    async def fail(number):
        raise OSError(number)

    async def all_fail():
        work = InFlight(3)
        for number in range(3):
            await work.start(lambda number=number: fail(number))
        with pytest.raises(OSError, match="0"):
            await work.wait()
        await work.end(1)

    asyncio.run(all_fail())
    gc.collect()
    assert not caplog.records
