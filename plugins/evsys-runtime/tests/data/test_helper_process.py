"""Work in a process that is killed when its time is up."""

import os
import threading

import pytest

from evsys_runtime.data.helper_process import HelperProcess

PROGRAM = """
import json, os, sys
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request == "die":
        sys.exit()
    if request == "hang":
        import time; time.sleep(60)
    print(json.dumps([os.getpid(), request]), flush=True)
"""


@pytest.fixture
def helper():
    process = HelperProcess(["-I", "-c", PROGRAM], "repeats")
    yield process
    process.close()


def test_one_process_answers_all_requests(helper):
    first, second = (helper.ask(request, 10, "this") for request in ({"a": 1}, ["ü", None]))
    assert first[0] == second[0] != os.getpid()
    assert (first[1], second[1]) == ({"a": 1}, ["ü", None])


def test_what_takes_too_long_is_killed_and_the_next_request_gets_another_process(helper):
    before = helper.ask(1, 10, "this")[0]
    with pytest.raises(TimeoutError, match=r"this took longer than 0\.2 s"):
        helper.ask("hang", 0.2, "this")
    assert helper.ask(2, 10, "this")[0] != before


def test_a_process_that_ends_is_told_of_and_replaced(helper):
    with pytest.raises(RuntimeError, match="the process that repeats ended without an answer to this"):
        helper.ask("die", 10, "this")
    assert helper.ask(3, 10, "this")[1] == 3


def test_a_process_that_cannot_start_is_told_of():
    with pytest.raises(RuntimeError, match="the process that fails can't be started"):
        HelperProcess(["-c", "raise SystemExit(3)"], "fails").ask(1, 10, "this")


def test_closing_ends_the_process_and_does_no_harm_twice(helper):
    before = helper.ask(1, 10, "this")[0]
    helper.close()
    helper.close()
    assert helper.ask(1, 10, "this")[0] != before


def test_threads_get_their_own_answers(helper):
    answers = {}

    def ask(number):
        answers[number] = helper.ask(number, 10, "this")[1]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(8)}
