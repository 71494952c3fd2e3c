"""Launchers with one fault each; their jobs are processes of this machine."""

import os
import signal
import subprocess
from contextlib import suppress
from typing import ClassVar

import attrs

from evsys.types import JobState


class Right:
    """Keeps the contract; the base of all that follow."""

    conformance: ClassVar = {"seconds": 60.0}
    workers = 8
    poll_seconds = 0.02

    def __init__(self):
        self.processes, self.names = {}, {}

    async def submit(self, jobs):
        return [self.start(job) for job in jobs]

    def start(self, job):
        number = str(len(self.processes) + 1)
        with job.output.open("ab") as output:
            self.processes[number] = subprocess.Popen(
                self.command(job),
                cwd=job.working_directory,
                env={**os.environ, **job.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.names[job.name] = number
        return number

    def command(self, job):
        return job.command

    async def find(self, name):
        return self.names.get(name)

    async def poll(self, ids):
        return {number: self.state(number) for number in ids}

    def state(self, number):
        if number not in self.processes:
            return JobState(state="ended")
        code = self.processes[number].poll()
        if code is None:
            return JobState(state="running")
        return JobState(
            state="ended", exit_code=code if code >= 0 else None, signal=-code if code < 0 else None
        )

    async def cancel(self, ids, *, now=False):
        for number in ids:
            self.processes[number].send_signal(signal.SIGKILL if now else signal.SIGTERM)

    async def close(self):
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


class OwnEnvironment(Right):
    def start(self, job):
        return super().start(attrs.evolve(job, environment={"SAYS": "nothing"}))


class Backwards(Right):
    async def submit(self, jobs):
        return (await super().submit(jobs))[::-1]


class NeedsJobs(Right):
    async def submit(self, jobs):
        return [self.start(jobs[0]), *await super().submit(jobs[1:])]


class RefusesUnknown(Right):
    def state(self, number):
        return super().state(number) if self.processes[number] else None


class FindsTheNewest(Right):
    async def find(self, name):
        return str(len(self.processes))


class KnowsNoSignals(Right):
    def state(self, number):
        found = super().state(number)
        return found if found.signal is None else JobState(state="ended", exit_code=1)


class KillsAtOnce(Right):
    async def cancel(self, ids, *, now=False):
        await super().cancel(ids, now=True)


class OnlyAsks(Right):
    conformance: ClassVar = {"seconds": 2.0}

    async def cancel(self, ids, *, now=False):
        await super().cancel(ids)


class CancelsOnce(Right):
    async def cancel(self, ids, *, now=False):
        for number in ids:
            os.kill(self.processes[number].pid, signal.SIGKILL if now else signal.SIGTERM)


class NoWorkers(Right):
    workers = 0
