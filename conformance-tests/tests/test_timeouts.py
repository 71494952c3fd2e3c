"""The limit for the time of a check."""

import signal
import time

import pytest

from evsys_conformance.timeouts import CheckTimeoutError, time_limit


def test_what_takes_too_long_is_interrupted_with_the_place():
    with pytest.raises(CheckTimeoutError) as caught, time_limit(0.05):
        time.sleep(60)
    assert "test_timeouts.py" in caught.value.place


def test_what_is_done_in_time_is_left_alone():
    with time_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0 or signal.getitimer(signal.ITIMER_REAL)[0] > 60


@pytest.fixture
def no_alarm():
    """Nobody else's alarm meanwhile."""
    handler, (left, again) = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left, again)


def test_an_alarm_of_somebody_else_goes_on_afterwards(no_alarm):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 100)
    with time_limit(50):
        assert 49 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50
    assert 99 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_an_alarm_of_somebody_else_that_is_due_before_is_left_alone(no_alarm):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 20)
    with time_limit(50):
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 19
