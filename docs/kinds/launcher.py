"""A launcher runs jobs in other processes, here or on other machines. An experiment gives it one job for each arm.

The job's process writes the arm's run into the experiment's record, which it finds on a path that all machines see.
A launcher only starts jobs, says how they are, and ends them; [launchers](../launchers.md) describes the rest.

## In an experiment file

The key is `launcher`; without it, arms run in the process of `evsys run`.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs

from evsys import option, register_launcher
from evsys.types import Job, JobState


@register_launcher("niced")
class Niced:
    """Jobs of low priority, on this machine."""

    poll_seconds: float = 0.5
    workers: int = 2

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters."""

        workers: int = option(2, "Jobs at once.", ge=1)

    def __init__(self, **fields: int) -> None:
        self.workers = self.Config(**fields).workers
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._names: dict[str, str] = {}

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        return [self._start(job) for job in jobs]

    def _start(self, job: Job) -> str:
        environment = {**os.environ, **job.environment}
        with job.output.open("ab") as output:
            process = subprocess.Popen(
                ["nice", *job.command],
                cwd=job.working_directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._names[job.name] = number = str(process.pid)
        self._jobs[number] = process
        return number

    async def find(self, name: str) -> str | None:
        return self._names.get(name)

    async def poll(self, ids: Sequence[str]) -> Mapping[str, JobState]:
        return {number: self._state(number) for number in ids}

    def _state(self, number: str) -> JobState:
        process = self._jobs.get(number)
        if process is None:
            return JobState(state="ended", cause="unknown here", preempted=True)
        code = process.poll()
        if code is None:
            return JobState(state="running", place=f"process {number}")
        if code < 0:
            return JobState(state="ended", signal=-code)
        return JobState(state="ended", exit_code=code)

    async def cancel(self, ids: Sequence[str], *, now: bool = False) -> None:
        for number in self._jobs.keys() & set(ids):
            self._jobs[number].send_signal(signal.SIGKILL if now else signal.SIGTERM)

    async def close(self) -> None:
        for process in self._jobs.values():
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.to_thread(process.wait)
