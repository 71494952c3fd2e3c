"""Threads of the engine: in order, safe to shut down, and never in the way of the process's end."""

import gc
import os
import subprocess
import sys
import threading

import pytest

from evsys_backend_local.engine.threads import DaemonExecutor

STILL_COMPUTING = """
import threading
from evsys_backend_local.engine.abort import Abort, AbortedError
from evsys_backend_local.engine.threads import DaemonExecutor

started = threading.Event()

def compute():
    abort = Abort()
    while True:
        started.set()
        try:
            abort.check()
        except AbortedError:
            print("ended")
            return

DaemonExecutor(1, "test").submit(compute)
started.wait(20)
"""


def test_calls_run_in_the_order_of_submission_and_give_results_and_errors():
    executor, order = DaemonExecutor(1, "test"), []
    calls = [executor.submit(order.append, number) for number in range(20)]
    failing = executor.submit(int, "x")
    assert [call.result(20) for call in calls] == [None] * 20
    assert order == list(range(20))
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(20)
    executor.shutdown()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_whatever_a_call_raises_reaches_who_waits_and_the_thread_goes_on(error):
    executor = DaemonExecutor(1, "test")

    def fails():
        raise error

    with pytest.raises(error):
        executor.submit(fails).result(20)
    assert executor.submit(int, "3").result(20) == 3
    executor.shutdown()


def test_shutting_down_cancels_what_waits_and_refuses_more():
    executor, go = DaemonExecutor(1, "test"), threading.Event()
    running, waiting = executor.submit(go.wait, 20), executor.submit(int, "3")
    executor.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert waiting.cancelled()
    assert running.result(20) is True
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(int)


def test_threads_end_when_nobody_holds_the_executor_any_more():
    executor = DaemonExecutor(2, "test")
    executor.submit(int).result(20)
    threads = executor._threads
    del executor
    gc.collect()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


FORKED = """
import os
from evsys.errors import BackendError
from evsys_backend_local.engine.threads import DaemonExecutor

executor = DaemonExecutor(1, "test")
child = os.fork()
if child == 0:
    try:
        executor.submit(int).result(20)
    except BackendError as error:
        os._exit(3 if "forked" in str(error) else 4)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), executor.submit(int, "7").result(20))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_in_a_forked_process_a_call_is_refused_instead_of_waiting_for_ever():
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "3 7\n"


def test_the_process_ends_while_a_call_computes_and_the_call_is_told():
    ended = subprocess.run(
        [sys.executable, "-c", STILL_COMPUTING], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "ended\n"
    assert ended.stderr == ""
