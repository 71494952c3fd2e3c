"""Worker threads and BLAS threads of the process.

Training runs several workers with one BLAS thread each: element-wise work is parallel too, and no thread waits at a
barrier inside a matrix product. Decoding a few sequences reads every weight once a step, so there BLAS threads share
one pass over them.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from threadpoolctl import ThreadpoolController

from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.arrays import NUMPY, Arrays
from evsys_backend_local.engine.threads import DaemonExecutor
from evsys_backend_local.engine.workspace import Workspace

#: Seconds between looks at the flag while another engine of the process computes.
POLL = 0.05

#: Computations of all engines of the process take turns: the number of BLAS threads is a property of the process.
_PROCESS = threading.RLock()


@cache
def _process_blas() -> tuple[ThreadpoolController, dict[str, Any]]:
    """The controller, and what the process's BLAS was before anyone limited its threads."""
    controller = ThreadpoolController()
    libraries = [entry for entry in controller.info() if entry.get("user_api") == "blas"]
    return controller, dict(libraries[0]) if libraries else {}


def cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas_info() -> dict[str, Any]:
    """The BLAS in use, for the record of a run.

    Returns:
        ``name``, ``version``, ``kernel`` (the CPU family the BLAS chose code for), ``threads`` (those it starts
        with; training gives each worker one), ``numpy``, ``coretype`` (value of ``OPENBLAS_CORETYPE``, which
        overrides the choice, or None).
    """
    first = _process_blas()[1]
    return {
        "name": first.get("internal_api", "unknown"),
        "version": first.get("version"),
        "kernel": first.get("architecture"),
        "threads": first.get("num_threads"),
        "numpy": np.__version__,
        "coretype": os.environ.get("OPENBLAS_CORETYPE"),
    }


@contextmanager
def hold_lock(lock: threading.RLock, abort: Abort | None = None) -> Iterator[None]:
    """Hold a lock.

    Raises:
        AbortedError: ``abort`` was set before it was this caller's turn.
    """
    if abort is None:
        lock.acquire()
    else:
        abort.check()
        while not lock.acquire(timeout=POLL):
            abort.check()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def blas_threads(count: int, abort: Abort | None = None) -> Iterator[None]:
    """Hold the process's BLAS and limit it to ``count`` threads a call.

    Raises:
        AbortedError: ``abort`` was set before it was this caller's turn.
    """
    with hold_lock(_PROCESS, abort), _process_blas()[0].limit(limits=count, user_api="blas"):
        yield


class WorkerPool:
    """A fixed number of threads, each with a workspace of its own.

    Work is dealt out before it starts, by estimated cost, so that the same items land on the same worker on every
    run; the caller sums results in worker order. Same items and same count therefore give the same bits.
    """

    def __init__(self, count: int, dtype: DTypeLike, xp: Arrays = NUMPY) -> None:
        if count < 1:
            raise ValueError(f"worker count must be at least 1, got {count}")
        self.count = count
        self.workspaces = [Workspace(dtype, xp) for _ in range(count)]
        self._executor = DaemonExecutor(count, "evsys-local-worker")

    def deal(self, costs: Sequence[float]) -> list[list[int]]:
        """Split items over workers, dearest first to the least loaded; each worker's items ascend."""
        loads = [0.0] * self.count
        hands: list[list[int]] = [[] for _ in range(self.count)]
        for item in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
            worker = min(range(self.count), key=lambda index: (loads[index], index))
            loads[worker] += costs[item]
            hands[worker].append(item)
        return [sorted(hand) for hand in hands]

    def run[T](self, tasks: Sequence[Callable[[Workspace], T]], abort: Abort | None = None) -> list[T]:
        """Run one task per worker, at most ``count`` of them; the first failure in worker order is raised.

        Tasks look at ``abort`` themselves; here it ends the wait for this engine's turn. They run in copies of the caller's
        context, which says what numpy does about an overflow.
        """
        with blas_threads(1, abort):
            futures = [
                self._executor.submit(contextvars.copy_context().run, task, workspace)
                for task, workspace in zip(tasks, self.workspaces, strict=False)
            ]
            # Wait for all, so that no worker still computes when an error is reported.
            errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown()
