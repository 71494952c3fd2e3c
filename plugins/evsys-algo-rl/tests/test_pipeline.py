"""The queue between rollouts and training: order, age, bounds in both directions, failures."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_algo_rl.groups import TaskGroup
from evsys_algo_rl.pipeline import Pipeline


class Snapshot:
    def __init__(self, version):
        self.version = version
        self.closed = False

    async def close(self):
        self.closed = True


def group(position, version=0):
    return TaskGroup(task_id=f"t{position}", position=position, version=version, rollouts=(), members=())


class Sampler:
    """Gives a group when the test lets it: `finish(position)`."""

    def __init__(self):
        self.calls = []
        self._free = {}

    def _event(self, position):
        return self._free.setdefault(position, asyncio.Event())

    def finish(self, *positions):
        for position in positions:
            self._event(position).set()

    async def __call__(self, positions, snapshot, call):
        self.calls.append((call, list(positions), snapshot.version))
        for position in positions:
            await self._event(position).wait()
            self._event(position).clear()
            yield group(position, snapshot.version)


async def at_once(positions, snapshot, call):
    for position in positions:
        yield group(position, snapshot.version)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def pipeline(sample, max_staleness=0, key=lambda position: position):
    return Pipeline(sample, max_staleness=max_staleness, key=key)


async def test_without_staleness_a_round_is_sampled_by_the_policy_of_that_round():
    sampler = Sampler()
    queue = pipeline(sampler)
    for version in range(3):
        await queue.begin(Snapshot(version), version)
        positions = [2 * version, 2 * version + 1]
        sampler.finish(*positions)
        taken = await queue.take(2)
        assert [(g.position, g.version) for g in taken.groups] == [(p, version) for p in positions]
        await settled()
    assert sampler.calls == [(0, [0, 1], 0), (1, [2, 3], 1), (2, [4, 5], 2)]
    await queue.close()


async def test_groups_come_in_the_order_of_the_data_whatever_finishes_first():
    async def backwards(positions, snapshot, call):
        for position in reversed(positions):
            yield group(position)

    queue = pipeline(backwards)
    await queue.begin(Snapshot(0), 0)
    assert [g.position for g in (await queue.take(3)).groups] == [0, 1, 2]
    await queue.close()


async def test_rollouts_run_while_the_training_does_something_else():
    sampler = Sampler()
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0, 1, 2, 3)
    await queue.take(2, ahead=2)
    assert sampler.calls == [(n, [n], 0) for n in range(4)]
    await settled()
    await queue.begin(Snapshot(1), 1)
    taken = await queue.take(2, ahead=2)
    assert [(g.position, g.version) for g in taken.groups] == [(2, 0), (3, 0)]
    await settled()
    assert sampler.calls[4:] == [(4, [4], 1), (5, [5], 1)]
    await queue.close()


async def test_no_more_is_sampled_than_there_is_room_for():
    sampler = Sampler()
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(Snapshot(0), 0)
    taking = asyncio.create_task(queue.take(2, ahead=2))
    await settled()
    assert sum(len(positions) for _, positions, _ in sampler.calls) == 4
    sampler.finish(0, 1, 2, 3)
    await taking
    await settled()
    assert sum(len(positions) for _, positions, _ in sampler.calls) == 4
    await queue.close()


async def test_older_groups_are_sampled_first_and_later_ones_with_the_newest_policy():
    sampler = Sampler()
    queue = Pipeline(sampler, max_staleness=1, key=lambda position: position, at_once=2)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0)
    await queue.take(1, ahead=3)
    await settled()
    assert sampler.calls == [(0, [0], 0), (1, [1], 0), (2, [2], 0)]  # position 3 has no room yet
    await queue.begin(Snapshot(1), 1)
    sampler.finish(1)
    await settled()
    assert sampler.calls[3:] == [(3, [3], 1)]
    await queue.close()


async def test_training_waits_for_groups_and_says_how_long():
    sampler = Sampler()
    queue = pipeline(sampler)
    await queue.begin(Snapshot(0), 0)
    taking = asyncio.create_task(queue.take(2))
    await settled()
    sampler.finish(0)
    await settled()
    assert not taking.done()
    sampler.finish(1)
    taken = await taking
    assert taken.wait_seconds > 0
    await queue.close()


async def test_what_is_too_old_is_dropped_and_its_task_sampled_once_more_and_no_more():
    sampler = Sampler()
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0, 1)
    await queue.take(1, ahead=1)
    await settled()
    await queue.begin(Snapshot(2), 2)  # two rounds on: position 1 is too old now
    taking = asyncio.create_task(queue.take(1, ahead=1))
    await settled()
    assert sampler.calls[2:] == [(2, [1], 2), (3, [2], 2)]
    sampler.finish(1, 2)
    taken = await taking
    assert (taken.stale, [(g.position, g.version) for g in taken.groups]) == (1, [(1, 2)])
    await settled()
    await queue.begin(Snapshot(4), 4)
    taking = asyncio.create_task(queue.take(1))
    await settled()
    sampler.finish(2)
    assert [g.position for g in (await taking).groups] == [2]  # too old for the first time
    await queue.close()


async def test_a_task_that_was_too_late_twice_is_given_up():
    sampler = Sampler()
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0, 1)
    await queue.take(1, ahead=1)
    await settled()
    await queue.begin(Snapshot(2), 2)
    sampler.finish(1, 2)
    await queue.take(1, ahead=1)  # takes position 1 again; 2 waits
    await settled()
    await queue.begin(Snapshot(4), 4)
    sampler.finish(2, 3)
    assert [g.position for g in (await queue.take(1, ahead=1)).groups] == [2]
    await settled()
    await queue.begin(Snapshot(6), 6)
    sampler.finish(3, 4)
    first = await queue.take(1, ahead=1)
    await settled()
    assert (first.stale, [g.position for g in first.groups]) == (1, [3])
    assert queue.state()["waiting"] == [[4, False]]
    await queue.close()


async def test_skipped_groups_are_replaced_within_a_bound():
    queue = pipeline(at_once)
    await queue.begin(Snapshot(0), 0)
    taken = await queue.take(3, refill=3, skip=lambda g: g.position in (0, 2, 4))
    assert [g.position for g in taken.groups] == [1, 3, 5]
    assert [g.position for g in taken.flat] == [0, 2, 4]
    fewer = await queue.take(3, refill=2, skip=lambda g: g.position != 7)
    assert ([g.position for g in fewer.groups], len(fewer.flat)) == ([7], 4)
    nothing = await queue.take(2, refill=2, skip=lambda g: True)
    assert ([g.position for g in nothing.groups], nothing.flat) == ([11, 12, 13, 14], [])
    await queue.close()


async def test_a_task_is_never_twice_in_one_call():
    sampler = Sampler()
    queue = pipeline(sampler, key=lambda position: position % 2)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0, 1, 2, 3)
    await queue.take(4)
    assert sampler.calls == [(0, [0, 1], 0), (1, [2, 3], 0)]
    await queue.close()


async def test_a_policy_is_closed_when_a_newer_one_is_there_and_nobody_uses_it():
    sampler, first, second = Sampler(), Snapshot(0), Snapshot(1)
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(first, 0)
    sampler.finish(0)
    await queue.take(1, ahead=1)
    await queue.begin(second, 1)
    assert not first.closed  # position 1 is still being sampled by it
    sampler.finish(1)
    await settled()
    assert (first.closed, second.closed) == (True, False)
    await queue.close()
    assert second.closed


async def test_a_sampling_that_fails_fails_the_batch():
    async def broken(positions, snapshot, call):
        yield group(positions[0])
        raise RuntimeError("the engine is gone")

    queue = pipeline(broken)
    await queue.begin(Snapshot(0), 0)
    with pytest.raises(RuntimeError, match="the engine is gone"):
        await queue.take(2)
    await queue.close()


async def test_a_sampling_that_fails_on_an_older_policy_fails_the_batch_though_that_takes_long_to_close():
    class Slow(Snapshot):
        async def close(self):
            await settled()
            self.closed = True

    sampler, old = Sampler(), Slow(0)

    async def sample(positions, snapshot, call):
        async for found in sampler(positions, snapshot, call):
            if found.position == 1:
                raise RuntimeError("the engine is gone")
            yield found

    queue = pipeline(sample, max_staleness=1)
    await queue.begin(old, 0)
    sampler.finish(0)
    await queue.take(1, ahead=1)
    await queue.begin(Slow(1), 1)
    taking = asyncio.create_task(queue.take(1))
    await settled()
    sampler.finish(1)
    with pytest.raises(RuntimeError, match="the engine is gone"):
        await asyncio.wait_for(taking, 5)
    assert old.closed
    await queue.close()


async def test_closing_ends_what_runs():
    sampler, snapshot = Sampler(), Snapshot(0)
    queue = pipeline(sampler)
    await queue.begin(snapshot, 0)
    taking = asyncio.create_task(queue.take(1))
    await settled()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await queue.close()
    await queue.close()
    assert snapshot.closed


async def test_who_goes_on_from_a_state_samples_what_was_under_way():
    sampler = Sampler()
    queue = pipeline(sampler, max_staleness=1)
    await queue.begin(Snapshot(0), 0)
    sampler.finish(0, 1, 2)
    await queue.take(2, ahead=2)
    state = queue.state()
    assert state == {"position": 4, "calls": 4, "waiting": [[2, False], [3, False]]}
    await queue.close()
    again = Sampler()
    other = pipeline(again, max_staleness=1)
    other.load_state(**state)
    await other.begin(Snapshot(1), 1)
    again.finish(2, 3)
    await other.take(2)
    assert again.calls == [(4, [2], 1), (5, [3], 1)]
    await other.close()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    staleness=st.integers(0, 3),
    size=st.integers(1, 4),
    at_once=st.integers(1, 5),
    skipped=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_whatever_finishes_when_a_run_gets_its_groups_and_no_bound_is_passed(
    seed, staleness, size, at_once, skipped
):
    rng = random.Random(seed)
    under_way, most = 0, 0

    async def sample(positions, snapshot, call):
        nonlocal under_way, most
        for position in rng.sample(positions, len(positions)):
            under_way += 1
            most = max(most, under_way)
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
            under_way -= 1
            yield group(position, snapshot.version)

    async def steps():
        queue = Pipeline(sample, max_staleness=staleness, key=lambda position: position % 7, at_once=at_once)
        snapshots, seen = [], []
        for step in range(8):
            snapshots.append(Snapshot(step))
            await queue.begin(snapshots[-1], step)
            taken = await queue.take(
                size, ahead=size * staleness, refill=size, skip=lambda _: rng.random() < skipped
            )
            assert 1 <= len(taken.groups) <= 2 * size
            assert all(0 <= step - g.version <= staleness for g in [*taken.groups, *taken.flat])
            positions = [g.position for g in taken.groups]
            assert positions == sorted(positions)
            seen += [g.position for g in [*taken.groups, *taken.flat]]
            assert len(queue.state()["waiting"]) <= size * staleness
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
        await queue.close()
        await settled()
        assert len(seen) == len(set(seen))  # a task's rollouts are never trained twice
        assert all(snapshot.closed for snapshot in snapshots)
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    asyncio.run(asyncio.wait_for(steps(), 30))
    if staleness:
        assert most <= at_once
