"""A service that fails for long is left alone, looked at now and then, and given up in the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from evsys.errors import BackendError
from evsys_runtime.accounting.breaker import (
    Breaker,
    BreakerSettings,
    ServiceDownError,
    shared_breaker,
    use_outages,
)

SETTINGS = BreakerSettings(
    failures=3, open_after=30, cool_down=10, longest_cool_down=40, give_up_after=300, forget_after=200
)


class Clock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def breaker():
    return Breaker("http://a", settings=SETTINGS, clock=Clock())


def fails(breaker, *times, probe=None):
    for time in times:
        breaker.clock.time = time
        with breaker.attempt() as attempt:
            attempt.failed("HTTP 503", probe)


def opened(breaker, probe=None):
    fails(breaker, 0, 15, 30, probe=probe)
    assert breaker.is_open
    return breaker


def test_some_failures_in_a_moment_open_nothing(breaker):
    fails(breaker, *[1.0] * 50)
    assert not breaker.is_open


def test_refusals_in_a_row_open_it_however_fast(breaker):
    for count in range(SETTINGS.refusals):
        assert not breaker.is_open, count
        breaker.refused("HTTP 401")
    assert breaker.is_open


def test_requests_that_were_silent_for_long_open_it_as_they_end(breaker):
    breaker.clock.time = 100
    for _ in range(SETTINGS.failures):
        breaker.failed("no answer", began=60)
    assert breaker.is_open


def test_silence_counts_from_the_last_answer_to_any_request(breaker):
    breaker.clock.time = 90
    breaker.succeeded()
    breaker.clock.time = 100
    for _ in range(SETTINGS.failures):
        breaker.failed("no answer", began=0)
    assert not breaker.is_open


def test_few_failures_over_a_long_time_open_nothing(breaker):
    fails(breaker, 0, 100)
    assert not breaker.is_open


def test_an_answer_now_and_then_keeps_it_closed(breaker):
    for start in range(0, 1000, 40):
        fails(breaker, start, start + 10, start + 20)
        breaker.succeeded()
    assert not breaker.is_open


def test_a_pause_begins_a_new_row_of_failures(breaker):
    fails(breaker, 0, 10, 1000, 1001, 1002)
    assert not breaker.is_open


def test_calls_fail_at_once_while_it_is_open_and_say_why(breaker):
    opened(breaker)
    with pytest.raises(
        ServiceDownError, match="http://a wasn't asked: it has failed for 30 s, at last with: HTTP 503"
    ) as error:
        breaker.check()
    assert isinstance(error.value, BackendError)
    assert isinstance(error.value.__cause__, OSError)
    with pytest.raises(ServiceDownError), breaker.attempt():
        pytest.fail("it was asked")


def test_after_the_cool_down_one_call_is_let_through_and_no_other_beside_it(breaker):
    opened(breaker)
    breaker.clock.time = 40
    with breaker.attempt() as probe:
        with pytest.raises(ServiceDownError):
            breaker.check()
        with pytest.raises(ServiceDownError), breaker.attempt():
            pytest.fail("it was asked")
        probe.succeeded()
    assert not breaker.is_open
    breaker.check()


def test_each_probe_in_vain_doubles_the_cool_down_up_to_the_longest(breaker):
    opened(breaker)
    at = 40.0
    for wait in (20, 40, 40):
        fails(breaker, at)
        breaker.clock.time = at + wait - 0.1
        with pytest.raises(ServiceDownError):
            breaker.check()
        at += wait


def test_a_probe_that_is_cancelled_leaves_room_for_the_next(breaker):
    opened(breaker)
    breaker.clock.time = 40
    with pytest.raises(asyncio.CancelledError), breaker.attempt():
        raise asyncio.CancelledError
    with breaker.attempt(), pytest.raises(ServiceDownError), breaker.attempt():
        pytest.fail("it was asked")


def test_a_call_that_began_before_and_is_answered_now_closes_it(breaker):
    with breaker.attempt() as early:
        opened(breaker)
        early.succeeded()
    assert not breaker.is_open


def test_threads_let_only_one_of_them_look(breaker):
    opened(breaker)
    breaker.clock.time = 40
    let_through, gate = [], threading.Barrier(8)

    def call():
        gate.wait()
        try:
            with breaker.attempt() as attempt:
                let_through.append(attempt)
                held.wait(10)
        except ServiceDownError:
            refused.append(1)
            if len(refused) == 7:
                held.set()

    refused, held = [], threading.Event()
    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(let_through) == 1


def test_all_who_name_a_service_share_its_breaker_while_somebody_holds_it():
    one = shared_breaker("http://b")
    assert shared_breaker("http://b") is one
    assert shared_breaker("http://c") is not one
    one.failed("x")
    del one
    assert shared_breaker("http://b")._failures == 0


# --- outages of an experiment --------------------------------------------------------------------------------------


def test_an_experiment_looks_again_by_itself_and_goes_on_once_the_service_is_back(breaker):
    answers = ["HTTP 503", "HTTP 503", None]

    async def probe():
        return answers.pop(0)

    async def main():
        with use_outages() as outages:
            watching = asyncio.create_task(outages.given_up())
            opened(breaker, probe)
            assert outages.are_there
            async with asyncio.timeout(10):
                await outages.change(before=True)
            assert not outages.are_there
            assert not watching.done()
            watching.cancel()

    asyncio.run(main())
    assert answers == []
    assert breaker.clock.time == 30 + 10 + 20 + 40


def test_an_experiment_gives_up_a_service_that_stays_away(breaker):
    async def probe():
        raise RuntimeError("no route")

    async def main():
        with use_outages() as outages:
            opened(breaker, probe)
            async with asyncio.timeout(10):
                return await outages.given_up()

    error = asyncio.run(main())
    assert isinstance(error, ServiceDownError)
    assert "at last with: RuntimeError: no route" in error.message
    assert 300 <= breaker.clock.time <= 300 + 40


def test_what_is_met_in_a_thread_is_told_to_the_experiment(breaker):
    async def main():
        with use_outages() as outages:
            await asyncio.to_thread(opened, breaker)
            async with asyncio.timeout(10):
                await outages.change(before=False)
            assert outages.are_there

    asyncio.run(main())


def test_a_change_between_the_look_and_the_waiting_for_it_is_not_missed(breaker):
    async def main():
        with use_outages() as outages:
            opened(breaker)
            seen = outages.are_there
            waiting = asyncio.create_task(outages.change(before=seen))
            breaker.succeeded()  # before the task has run
            async with asyncio.timeout(10):
                await waiting

    asyncio.run(main())


def test_other_experiments_hear_nothing_of_it(breaker):
    async def main():
        with use_outages() as one:
            pass
        with use_outages() as other:
            opened(breaker)
        return one.are_there, other.are_there

    assert asyncio.run(main()) == (False, True)
