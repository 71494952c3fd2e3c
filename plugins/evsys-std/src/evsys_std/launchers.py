"""The launcher `processes`: each arm in a process of its own on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.types import Job, JobState

__all__ = ["Processes"]

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""The variables by which numeric libraries know how many threads they may use."""

DEVICES = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}


@attrs.define(kw_only=True, eq=False)
class _Slot:
    """A place for one process, with what it may use."""

    number: int
    device: str | None
    process: subprocess.Popen[bytes] | None = None


class Processes:
    """Runs `workers` jobs at once, each in a process and a session of its own; further jobs wait here.

    A job ends with the process that submitted it, however that ends.
    """

    name: ClassVar[str] = "processes"
    poll_seconds: ClassVar[float] = 0.1

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `processes`."""

        workers: int | None = option(
            None,
            "Processes at once; by default one for each device, else for each `threads` CPU cores.",
            ge=1,
        )
        threads: int | None = option(
            None,
            "Threads that numeric libraries use in each; by default the cores divided by `workers`.",
            ge=1,
        )
        devices: tuple[str, ...] = option((), "GPUs, such as ['0', '1']: each process sees one of them.")
        device_kind: Literal["cuda", "rocm"] = option("cuda", "Which variable names the visible GPU.")
        environment: Mapping[str, str] = option(attrs.Factory(dict), "Further environment variables.")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        devices: tuple[str | None, ...] = self.config.devices or (None,)
        self._slots = [
            _Slot(number=number, device=devices[number % len(devices)]) for number in range(self.workers)
        ]
        self._waiting: deque[tuple[str, Job]] = deque()
        self._running: dict[str, _Slot] = {}
        self._ended: dict[str, JobState] = {}
        self._names: dict[str, str] = {}

    @property
    def workers(self) -> int:
        """Processes at once."""
        cores = _cores()
        return self.config.workers or len(self.config.devices) or max(1, cores // (self.config.threads or 1))

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return self.config.threads or max(1, _cores() // self.workers)

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Queue jobs, and start those that there is room for."""
        ids = []
        for job in jobs:
            number = f"{os.getpid()}.{len(self._names) + 1}"
            self._names[job.name] = number
            self._waiting.append((number, job))
            ids.append(number)
        self._fill()
        return ids

    async def find(self, name: str) -> str | None:
        """The id of a job of this process."""
        return self._names.get(name)

    async def poll(self, ids: Sequence[str]) -> dict[str, JobState]:
        """The states of jobs; one of another process ended with that."""
        self._collect()
        self._fill()
        queued = {number for number, _ in self._waiting}
        return {number: self._state(number, queued) for number in ids}

    async def cancel(self, ids: Sequence[str], *, now: bool = False) -> None:
        """SIGTERM, or SIGKILL to the job and all that it started."""
        for number, job in tuple(self._waiting):
            if number in ids:
                self._waiting.remove((number, job))
                self._ended[number] = JobState(state="ended", cause="cancelled before it started")
        for number in ids:
            if (slot := self._running.get(number)) is not None and slot.process is not None:
                _signal(slot.process, signal.SIGKILL if now else signal.SIGTERM)

    async def close(self) -> None:
        """End what still runs."""
        self._waiting.clear()
        for slot in self._running.values():
            if slot.process is not None:
                _signal(slot.process, signal.SIGKILL)
                await asyncio.to_thread(slot.process.wait)
        self._collect()

    def _fill(self) -> None:
        for slot in self._slots:
            if slot.process is None and self._waiting:
                number, job = self._waiting.popleft()
                self._start(slot, number, job)

    def _start(self, slot: _Slot, number: str, job: Job) -> None:
        environment = {
            **os.environ,
            **dict.fromkeys(THREADS, str(self.threads)),
            **({} if slot.device is None else {DEVICES[self.config.device_kind]: slot.device}),
            **self.config.environment,
            **job.environment,
            "EVSYS_PARENT": str(os.getpid()),
        }
        try:
            with job.output.open("ab") as output:
                slot.process = subprocess.Popen(
                    job.command,
                    cwd=job.working_directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._ended[number] = JobState(state="ended", cause=f"it can't be started: {error}")
        else:
            self._running[number] = slot

    def _collect(self) -> None:
        """Free the slots of processes that have ended."""
        for number, slot in tuple(self._running.items()):
            assert slot.process is not None
            code = slot.process.poll()
            if code is None:
                continue
            _signal(slot.process, signal.SIGKILL)  # what it started and left behind
            del self._running[number]
            self._ended[number] = JobState(
                state="ended",
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                place=_place(slot),
            )
            slot.process = None

    def _state(self, number: str, queued: set[str]) -> JobState:
        if number in queued:
            return JobState(state="queued")
        if (slot := self._running.get(number)) is not None:
            return JobState(state="running", place=_place(slot))
        unknown = JobState(state="ended", cause="the process that started it has ended", preempted=True)
        return self._ended.get(number, unknown)


def _place(slot: _Slot) -> str | None:
    if slot.process is None:
        return None
    return f"process {slot.process.pid}" + ("" if slot.device is None else f", GPU {slot.device}")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and to all of its session's first group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _cores() -> int:
    """The CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
