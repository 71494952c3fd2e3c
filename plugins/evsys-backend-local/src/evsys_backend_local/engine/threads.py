"""Threads that never keep the process alive.

The interpreter waits at exit for those of `concurrent.futures.ThreadPoolExecutor`, however long their work takes.
These are daemons: at exit the work in progress is aborted (see `abort`) and gets a moment to do so.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from evsys.errors import BackendError
from evsys_backend_local.engine.abort import abort_all

__all__ = ["DaemonExecutor"]

EXIT_SECONDS = 5.0
"""How long the process waits at exit for work in progress: native code that runs on could crash it."""

type _Tasks = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class DaemonExecutor(Executor):
    """`count` daemon threads that take tasks in the order of submission.

    Args:
        count: threads.
        name: start of the threads' names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._tasks: _Tasks = SimpleQueue()
        self._process = os.getpid()
        self._lock = Lock()
        self._closed = False
        self._threads = [
            Thread(target=_work, args=(self._tasks,), name=f"{name}_{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()
        _EXECUTORS.add(self)
        _THREADS.update(self._threads)
        # Threads hold the queue alone, so that they end when no one holds the executor any more.
        weakref.finalize(self, _end, self._tasks, count).atexit = False

    def submit[T, **P](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call.

        Raises:
            RuntimeError: the executor was shut down.
            BackendError: it was made in another process, which this one was forked from.
        """
        if os.getpid() != self._process:
            raise BackendError(
                "the local engine was made before this process was forked, and its threads aren't here",
                hint="make it in the process that uses it, or start processes by `spawn`",
            )
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor was shut down")
            self._tasks.put((future, functools.partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks. Safe to call twice, and in a thread of its own when it doesn't wait."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                _cancel_waiting(self._tasks)
            _end(self._tasks, len(self._threads))
        if wait:
            for thread in self._threads:
                thread.join()


_EXECUTORS: weakref.WeakSet[DaemonExecutor] = weakref.WeakSet()
_THREADS: weakref.WeakSet[Thread] = weakref.WeakSet()  # those of dropped executors too


def _work(tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        _run(*task)
        del task  # what was computed isn't held while the thread waits


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # whoever waits gets it, a loss's SystemExit too; the thread continues
        future.set_exception(error)
    else:
        future.set_result(result)


def _cancel_waiting(tasks: _Tasks) -> None:
    while True:
        try:
            task = tasks.get_nowait()
        except Empty:
            return
        if task is not None:
            task[0].cancel()
            task[0].set_running_or_notify_cancel()  # tells whoever waits for it


def _end(tasks: _Tasks, count: int) -> None:
    for _ in range(count):
        tasks.put(None)


@atexit.register
def _end_all() -> None:
    abort_all()
    for executor in list(_EXECUTORS):
        executor.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + EXIT_SECONDS
    for thread in list(_THREADS):
        thread.join(max(0.0, deadline - time.monotonic()))
