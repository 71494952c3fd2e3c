"""The contract of a launcher: each job runs as it was given, and its end is known, whatever ended it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys.types import Job, JobState
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import run

__all__ = ["LauncherConformance"]

LASTING = "import sys, time; print('begun', flush=True); time.sleep(600)"


class LauncherConformance(PluginConformance):
    """Checks of the kind `launcher`, with small jobs of Python. Override `seconds` where a job takes longer to come to its end, and
    `jobs_folder` for a folder that every machine sees.
    """

    kind: ClassVar[str | None] = "launcher"
    words: ClassVar[Mapping[str, str]] = {
        "seconds": "the longest time from the submission of a job of a moment to its end",
    }

    @pytest.fixture
    def seconds(self, facts: Mapping[str, Any]) -> float:
        """The longest time from the submission of a job of a moment to its end."""
        return float(facts.get("seconds", 20.0))

    @pytest.fixture
    def jobs_folder(self, home: Path) -> Path:
        """A folder for jobs that every machine sees."""
        return home

    @check()
    def test_runs_jobs_as_they_are_given(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """A job runs its command in its folder with its environment, and its output is in its file."""
        code = "import os; print(os.getcwd(), os.environ['SAYS'], flush=True); import sys; sys.stderr.write('and ends\\n')"
        job = _job(jobs_folder, "one", code, SAYS="it runs")
        [state] = run(_to_the_end(plugin, [job], seconds))
        require_equal(
            state.exit_code, 0, "a job that ends well doesn't have the exit code 0 in its last state"
        )
        said = job.output.read_text(encoding="utf-8") if job.output.exists() else None
        wanted = f"{jobs_folder.resolve()} it runs\nand ends\n"
        require_equal(
            said, wanted, "the output of a job isn't what its command wrote, with its folder and variable"
        )

    @check()
    def test_gives_an_id_for_each_job(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """Several jobs have different ids, in their order, by which each is known."""
        jobs = [_job(jobs_folder, f"job-{code}", f"raise SystemExit({code})") for code in (3, 0, 4)]
        states = run(_to_the_end(plugin, jobs, seconds))
        require_equal(
            [state.exit_code for state in states], [3, 0, 4], "the exit codes aren't those of the jobs"
        )

    @check()
    def test_no_jobs_have_no_ids(self, plugin: Any) -> None:
        """Without jobs there is nothing to do, and no error."""

        async def nothing() -> tuple[list[str], dict[str, JobState]]:
            try:
                return list(await plugin.submit([])), dict(await plugin.poll([]))
            finally:
                await plugin.close()

        try:
            found = run(nothing())
        except Exception as exc:
            breach(f"without jobs it fails: {describe_error(exc)}", wanted="no ids and no states")
        require_equal(found, ([], {}), "without jobs there are ids or states")

    @check()
    def test_an_unknown_job_has_ended(self, plugin: Any) -> None:
        """A job that no one knows has ended: nothing waits for it."""

        async def ask() -> Any:
            try:
                return (await plugin.poll(["0"]))["0"]
            finally:
                await plugin.close()

        try:
            state = run(ask())
        except Exception as exc:
            breach(f"asked for a job that it doesn't know, it fails: {describe_error(exc)}", wanted="ended")
        require_equal(state.state, "ended", "a job that it doesn't know hasn't ended")

    @check()
    def test_finds_a_job_by_its_name(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """The id of a submitted job is found by its name, and that of no other."""

        async def find() -> tuple[Any, Any, Any]:
            try:
                jobs = [_job(jobs_folder, name, "pass") for name in ("a", "b")]
                ids = [each for job in jobs for each in await plugin.submit([job])]
                found = (ids, [await plugin.find(job.name) for job in jobs], await plugin.find("c"))
                await _wait(plugin, ids, seconds)
                return found
            finally:
                await plugin.close()

        ids, found, none = run(find())
        require_equal(list(found), list(ids), "the ids found by name aren't those of the submission")
        require_equal(none, None, "a name that no job has is found")

    @check()
    def test_knows_of_a_kill(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """A job whose process is killed has ended, by that signal or with its exit code."""
        code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        [state] = run(_to_the_end(plugin, [_job(jobs_folder, "killed", code)], seconds))
        require(
            state.signal == signal.SIGKILL or state.exit_code == 128 + signal.SIGKILL,
            "a job killed by SIGKILL isn't known to be",
            seen=state,
            wanted="signal=9, or exit_code=137",
        )

    @check()
    def test_a_job_asked_to_end_may_tidy_up(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """`cancel` sends SIGTERM, which the job may handle."""
        code = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (print('tidied up', flush=True), sys.exit(5)))\n"
            "print('begun', flush=True)\ntime.sleep(600)"
        )
        job = _job(jobs_folder, "asked", code)
        state = run(_cancel(plugin, job, seconds, now=False))
        require_equal(state.state, "ended", "a job asked to end hasn't ended")
        said = job.output.read_text(encoding="utf-8")
        require("tidied up" in said, "a job asked to end couldn't handle SIGTERM", seen=said)

    @check()
    def test_a_cancelled_job_ends(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """`cancel(now=True)` ends a job that ignores SIGTERM."""
        code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{LASTING}"
        state = run(_cancel(plugin, _job(jobs_folder, "ends", code), seconds, now=True))
        require_equal(state.state, "ended", "a job ended at once hasn't ended")

    @check()
    def test_ended_jobs_can_be_cancelled(self, plugin: Any, jobs_folder: Path, seconds: float) -> None:
        """No error follows where a job had ended already, and it keeps how it ended."""

        async def twice() -> JobState:
            try:
                ids = await plugin.submit([_job(jobs_folder, "over", "raise SystemExit(6)")])
                await _wait(plugin, ids, seconds)
                await plugin.cancel(ids)
                await plugin.cancel(ids, now=True)
                return (await _wait(plugin, ids, seconds))[0]
            finally:
                await plugin.close()

        try:
            state = run(twice())
        except Exception as exc:
            breach(f"a job that has ended is cancelled, and it fails: {describe_error(exc)}")
        require_equal(state.exit_code, 6, "a job that had ended and is cancelled ended otherwise")

    @check()
    def test_says_how_many_jobs_run_at_once(self, plugin: Any) -> None:
        """`workers` is at least 1, and `poll_seconds` above 0."""
        require(isinstance(plugin.workers, int) and plugin.workers >= 1, "no job runs", seen=plugin.workers)
        require(plugin.poll_seconds > 0, "it would be asked without a pause", seen=plugin.poll_seconds)


def _job(folder: Path, name: str, code: str, **environment: str) -> Job:
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    return Job(
        name=f"conformance-{time.time_ns()}/{name}",
        command=(sys.executable, "-c", code),
        working_directory=folder.resolve(),
        folder=own.resolve(),
        environment=environment,
    )


async def _to_the_end(plugin: Any, jobs: Sequence[Job], seconds: float) -> list[JobState]:
    try:
        ids = await plugin.submit(jobs)
        require_equal(len(set(ids)), len(jobs), "the number of different ids isn't that of the jobs")
        return await _wait(plugin, ids, seconds)
    finally:
        await plugin.close()


async def _wait(plugin: Any, ids: Sequence[str], seconds: float) -> list[JobState]:
    """The last states of jobs."""
    until = time.monotonic() + seconds
    while True:
        found = await plugin.poll(ids)
        if all(found[number].state == "ended" for number in ids):
            return [found[number] for number in ids]
        require(time.monotonic() < until, f"jobs haven't ended after {seconds:g} s", seen=found)
        await asyncio.sleep(min(plugin.poll_seconds, 0.05))


async def _cancel(plugin: Any, job: Job, seconds: float, *, now: bool) -> JobState:
    """The last state of a job that is cancelled once it has begun."""
    try:
        ids = await plugin.submit([job])
        until = time.monotonic() + seconds
        while not (job.output.exists() and "begun" in job.output.read_text(encoding="utf-8")):
            await plugin.poll(ids)
            require(time.monotonic() < until, f"a job hasn't begun after {seconds:g} s")
            await asyncio.sleep(0.05)
        await plugin.cancel(ids, now=now)
        return (await _wait(plugin, ids, seconds))[0]
    finally:
        await plugin.close()
