"""Overflows are told to a log, once a place, and nowhere else."""

import contextvars
import threading

import numpy as np
import pytest

from evsys_runtime.training.floating_point import floating_point_in


class Log:
    def __init__(self):
        self.told = []

    def info(self, event, **facts):
        assert event == "numbers.odd"
        self.told.append((facts["what"], facts["place"]))


def overflow():
    return np.exp(np.array([1e4]))


@pytest.mark.parametrize(
    ("compute", "what"),
    [
        (overflow, "overflow"),
        (lambda: np.log(np.zeros(1)), "divide by zero"),
        (lambda: np.array([np.inf]) - np.inf, "invalid value"),
    ],
)
def test_each_kind_is_told_with_its_line_and_once(compute, what):
    log = Log()
    with floating_point_in(log):
        for _ in range(3):
            compute()
    ((kind, place),) = log.told
    assert kind == what
    assert place.startswith(f"{__file__}:")


def test_it_holds_in_threads_that_get_the_context_and_ends_with_the_block():
    log = Log()
    with floating_point_in(log):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(overflow,))
        thread.start()
        thread.join()
    assert [kind for kind, _ in log.told] == ["overflow"]
    with pytest.warns(RuntimeWarning, match="overflow"):
        overflow()


def test_an_own_setting_inside_wins():
    log = Log()
    with floating_point_in(log), np.errstate(over="ignore"):
        overflow()
    assert log.told == []
