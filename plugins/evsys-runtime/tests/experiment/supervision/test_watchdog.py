"""When nothing moves, and when something does: on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import functools
import threading
from types import SimpleNamespace

import pytest

from evsys.errors import BackendError, StoreError, boundary
from evsys_runtime.config.model import WatchdogConfig
from evsys_runtime.experiment.supervision.blocking import BlockedLoop
from evsys_runtime.experiment.supervision.stacks import place_of, stack_of
from evsys_runtime.experiment.supervision.watchdog import Watchdog, is_stall, watchdog_of


def in_loop(test):
    @functools.wraps(test)
    def run():
        asyncio.run(test())

    return run


class Clock:
    """Time that a test lets pass; whoever sleeps wakes when it is time."""

    def __init__(self):
        self.time = 0.0
        self.sleepers = []

    def now(self):
        return self.time

    async def sleep(self, seconds):
        woken = asyncio.Event()
        self.sleepers.append((self.time + seconds, woken))
        await woken.wait()

    async def passes(self, seconds, *, at_once=False):
        """Let time pass, by default in steps, so that whoever is to wake does so on time."""
        end = self.time + seconds
        while True:
            await turns()
            due = sorted((at for at, woken in self.sleepers if not woken.is_set() and at <= end))
            self.time = end if at_once or not due else max(self.time, due[0])
            for at, woken in self.sleepers:
                if at <= self.time:
                    woken.set()
            if not due or at_once:
                await turns()
                return


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


class Watched:
    """A watchdog over work that waits for ever, at a backend."""

    def __init__(self, **settings):
        self.clock, self.kept = Clock(), []
        self.watch = Watchdog(
            run_id="a-s0",
            settings=WatchdogConfig(**{"factor": 10.0, "floor_seconds": 100.0, **settings}),
            keep=self.kept.append,
            clock=self.clock,
        )
        self.task = asyncio.create_task(self.watch.watch(self.waits))

    async def waits(self):
        with boundary("backend", "slow", "a-s0"):
            await asyncio.Event().wait()

    async def stops(self):
        """True once it was ended; else it is ended now."""
        await turns()
        stalled = self.task.done()
        self.task.cancel()
        outcome = (await asyncio.gather(self.task, return_exceptions=True))[0]
        assert isinstance(outcome, BackendError if stalled else asyncio.CancelledError)
        return stalled


@in_loop
async def test_before_the_first_step_the_floor_alone_counts():
    watched = Watched()
    await watched.clock.passes(99)
    assert not watched.task.done()
    await watched.clock.passes(2)
    with pytest.raises(
        BackendError, match="nothing moved for 100 s while waiting for backend 'slow'"
    ) as stall:
        await watched.task
    assert is_stall(stall.value)
    assert "in waits" in watched.kept[0]
    assert "Thread MainThread" in watched.kept[0]


@in_loop
async def test_what_hangs_is_ended_though_no_record_of_it_can_be_written():
    def full(*_args, **_facts):
        raise StoreError("no space left")

    record = SimpleNamespace(run_id="a-s0", add_text=full, seal=full, appended=0)
    watch = watchdog_of(record, WatchdogConfig(floor_seconds=100.0), SimpleNamespace(info=full, warning=full))
    watch.clock = clock = Clock()

    async def waits():
        with boundary("backend", "slow", "a-s0"):
            await asyncio.Event().wait()

    task = asyncio.create_task(watch.watch(waits))
    await clock.passes(101)
    with pytest.raises(BackendError, match="nothing moved for 100 s"):
        await task


@in_loop
async def test_a_step_that_takes_long_may_take_ten_times_its_median():
    watched = Watched()
    watched.watch.evsys_run_started()
    for seconds in (50, 60, 70):
        await watched.clock.passes(seconds)
        watched.watch.evsys_step_finished()
    assert watched.watch.bound == 600
    await watched.clock.passes(599)
    assert not watched.task.done()
    await watched.clock.passes(2)
    assert await watched.stops()


@in_loop
async def test_whatever_moves_now_and_then_goes_on_for_ever():
    watched, rows = Watched(), 0
    watched.watch.follow(lambda: rows)
    for turn in range(50):
        await watched.clock.passes(90)
        if turn % 2:
            watched.watch.beat()
        else:
            rows += 1
    assert watched.clock.now() == 4500
    assert not await watched.stops()


@in_loop
async def test_time_in_which_the_loop_itself_stood_still_counts_for_nobody():
    watched = Watched()
    await watched.clock.passes(50)
    await watched.clock.passes(1000, at_once=True)
    await watched.clock.passes(49)
    assert not watched.task.done()
    await watched.clock.passes(2)
    assert await watched.stops()


@in_loop
async def test_who_waits_for_another_run_is_not_watched_meanwhile():
    watched = Watched()
    with watched.watch.pause():
        await watched.clock.passes(1000)
        assert not watched.task.done()
    await watched.clock.passes(101)
    assert await watched.stops()


@in_loop
async def test_what_has_a_longer_deadline_of_its_own_is_left_to_it():
    watched = Watched()
    watched.watch.allow(lambda: 1000.0)
    watched.watch.allow(lambda: 0.0)
    await watched.clock.passes(1099)
    assert not watched.task.done()
    await watched.clock.passes(2)
    assert await watched.stops()


@in_loop
async def test_a_longer_deadline_holds_only_as_long_as_what_has_it():
    watched, allowed = Watched(), [1000.0]
    watched.watch.allow(lambda: allowed[0])
    await watched.clock.passes(150)
    allowed[0] = 0.0
    await watched.clock.passes(25)
    assert await watched.stops()


@in_loop
async def test_the_result_or_the_failure_of_the_work_passes_through():
    async def gives():
        return 5

    async def fails():
        raise SystemExit(3)

    assert await Watched().watch.watch(gives) == 5
    with pytest.raises(SystemExit):
        await Watched().watch.watch(fails)


@in_loop
async def test_work_that_cancels_itself_is_told_from_work_that_is_cancelled():
    async def cancels():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Watched().watch.watch(cancels)
    assert asyncio.current_task().cancelling() == 0


@in_loop
async def test_a_deadline_that_passes_is_a_stall_of_its_boundary_with_the_stacks_on_record():
    watched = Watched()
    with pytest.raises(BackendError, match="teardown of backend 'slow' took longer than 0.01 s") as stall:
        async with watched.watch.deadline(0.01, "backend", "slow", "teardown"):
            await asyncio.Event().wait()
    assert is_stall(stall.value)
    assert watched.kept[0].startswith("teardown of backend 'slow' took longer than 0.01 s")
    with pytest.raises(TimeoutError, match="its own"):
        async with watched.watch.deadline(60, "backend", "slow", "teardown"):
            raise TimeoutError("its own")
    assert not await watched.stops()


# --- stacks --------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_stack_of_a_task_goes_through_generators_to_where_it_waits():
    async def innermost():
        await asyncio.Event().wait()

    async def generates():
        await innermost()
        yield 1

    class Waits:
        def __await__(self):
            return consumes().__await__()

    async def consumes():
        async for _ in generates():
            pass

    async def outermost():
        await Waits()

    task = asyncio.create_task(outermost())
    await turns()
    names = [frame.f_code.co_name for frame, _ in stack_of(task)]
    assert [name for name in names if name != "wait"] == [
        "outermost",
        "__await__",
        "consumes",
        "generates",
        "innermost",
    ] or ([name for name in names if name != "wait"] == ["outermost", "consumes", "generates", "innermost"])
    place = place_of(stack_of(task), known=lambda frame: frame.f_code.co_name == "wait")
    assert place.startswith(f"{__file__}:")
    assert place.endswith(" in innermost")
    task.cancel()


# --- a loop that is blocked ----------------------------------------------------------------------------------------


class Loop:
    """A loop whose turns a test decides on."""

    def __init__(self):
        self.asked = []

    def call_soon_threadsafe(self, call):
        self.asked.append(call)


@pytest.fixture
def blocked():
    time, dumped, told, loop = [0.0], [], [], Loop()
    watch = BlockedLoop(
        loop=loop,
        identity=threading.get_ident(),
        seconds=100.0,
        dump=dumped.append,
        tell=told.append,
        clock=lambda: time[0],
    )

    def look(now):
        time[0] = now
        watch.look()

    return look, loop, dumped, told


def test_a_loop_that_turns_is_left_alone(blocked):
    look, loop, dumped, told = blocked
    for now in range(0, 10_000, 90):
        look(float(now))
        while loop.asked:
            loop.asked.pop()()
    assert (dumped, told) == ([], [])


def test_a_loop_that_is_blocked_is_put_on_record_and_then_told_with_the_line_that_blocks_it(blocked):
    look, _, dumped, told = blocked
    for now in (0, 50, 99):
        look(now)
    assert (dumped, told) == ([], [])
    for now in (100, 150):
        look(now)
    assert (len(dumped), told) == (1, [])
    assert dumped[0].startswith("the event loop has been blocked for 100 s by ")
    for now in (200, 500):
        look(now)
    assert (len(dumped), len(told)) == (1, 1)
    assert "evsys can't end such a call" in told[0]
    assert "await asyncio.to_thread" in told[0]


def test_a_loop_that_is_blocked_again_is_told_of_again(blocked):
    look, loop, dumped, told = blocked
    for start in (0, 1000):
        for passed in (0, 100, 200):
            look(start + passed)
        loop.asked.pop()()
    assert (len(dumped), len(told)) == (2, 2)
