"""Agents of a wave begin together."""

import asyncio

from evsys_rollouts_harbor.gate import Gate


def test_all_begin_when_the_last_has_come_and_in_their_order():
    async def main():
        gate, order = Gate(), []

        async def one(place):
            await gate.arrive(place)
            order.append(place)

        for place in range(3):
            gate.expect(place)
        late = [asyncio.create_task(one(place)) for place in (2, 0)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []
        await asyncio.gather(*late, one(1))
        return order

    assert asyncio.run(main()) == [0, 1, 2]


def test_one_that_leaves_without_having_come_holds_nobody_up():
    async def main():
        gate = Gate()
        gate.expect(0)
        gate.expect(1)
        waiting = asyncio.create_task(gate.arrive(0))
        await asyncio.sleep(0)
        gate.leave(1)
        await asyncio.wait_for(waiting, 1)

    asyncio.run(main())


def test_one_that_is_cancelled_while_it_waits_holds_nobody_up():
    async def main():
        gate = Gate()
        for place in range(3):
            gate.expect(place)
        first, second = (asyncio.create_task(gate.arrive(place)) for place in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        gate.leave(2)
        await asyncio.wait_for(second, 1)

    asyncio.run(main())


def test_one_that_comes_again_when_all_others_have_passed_passes():
    async def main():
        gate = Gate()
        gate.expect(0)
        await asyncio.wait_for(gate.arrive(0), 1)
        await asyncio.wait_for(gate.arrive(0), 1)

    asyncio.run(main())
