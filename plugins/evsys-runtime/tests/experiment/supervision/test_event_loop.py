"""What a call leaves behind doesn't keep its result, or the process, from coming to an end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from evsys_runtime.experiment.supervision import event_loop as from_sync
from evsys_runtime.experiment.supervision.event_loop import keeps_process_alive, run_to_end

NAMES = {"call": "call()", "instead": "await acall()"}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(from_sync, "END_SECONDS", 0.05)


@pytest.fixture
def over():
    """Ends what a test leaves running."""
    event = threading.Event()
    yield event
    event.set()
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio_"):
            thread.join(10)
    assert not keeps_process_alive()


def test_a_thread_that_can_not_be_ended_is_left_and_named_and_the_result_is_there(tiny, over):
    async def work():
        def waits_for_ever():
            over.wait(60)

        waiting = asyncio.ensure_future(asyncio.to_thread(waits_for_ever))
        await asyncio.sleep(0)
        waiting.cancel()
        return 5

    told = []
    begun = time.monotonic()
    assert run_to_end(work, **NAMES, tell=told.append) == 5
    assert time.monotonic() - begun < 30
    (text,) = told
    assert text.startswith("left running, since it didn't end when it was cancelled: thread 'asyncio_0' (at ")
    assert text.endswith("in waits_for_ever)")
    assert keeps_process_alive()


def test_a_task_that_does_not_listen_is_left_and_named_in_a_warning(tiny):
    async def deaf():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    kept = []

    async def work():
        kept.append(asyncio.create_task(deaf(), name="deaf one"))
        await asyncio.sleep(0)
        return 5

    with pytest.warns(RuntimeWarning, match=r"left running, .*: task 'deaf one' \(at .* in deaf\)"):
        assert run_to_end(work, **NAMES) == 5
    assert not keeps_process_alive()


def test_what_ends_in_time_is_waited_for_and_nothing_is_told():
    ended = []

    async def lingers():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(ended.append, "task")

    async def generates():
        try:
            yield 1
        finally:
            ended.append("generator")

    kept = []

    async def work():
        kept.append(asyncio.create_task(lingers()))
        async for _ in (generator := generates()):
            kept.append(generator)
            break
        await asyncio.to_thread(int)
        return 5

    told = []
    assert run_to_end(work, **NAMES, tell=told.append) == 5
    assert (sorted(ended), told, keeps_process_alive()) == (["generator", "task"], [], False)


HANGS = """
import asyncio, threading
from evsys_backend_mock import MockBackend
from evsys_sdk import SFT, register_algorithm, register_backend

@register_backend("hangs")
class Hangs(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        async def optim_step(*args, **kwargs):
            await asyncio.to_thread(threading.Event().wait)
        client.optim_step = optim_step
        return client

@register_algorithm("deaf")
class Deaf(SFT):
    async def build_batch(self, step_idx):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
"""

COMMAND = """
import sys
from evsys_cli.main import main
from evsys_runtime.experiment.supervision import event_loop as from_sync
from evsys_runtime.experiment.supervision import watchdog
from evsys_runtime.evaluation import evaluator

from_sync.END_SECONDS = watchdog.GRACE_SECONDS = evaluator.CLOSE_SECONDS = 0.1
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("change", "left"),
    [(("kind: mock", "kind: hangs"), "thread 'asyncio_"), (("kind: sft", "kind: deaf"), "task '")],
)
def test_the_command_ends_with_its_result_and_code_whatever_a_plugin_keeps_running(
    project, run_text, change, left
):
    project.code("plugins", HANGS)
    run = "run:" + run_text(change)
    config = project.config(run, extra="watchdog: {factor: 10, floor_seconds: 0.5}\n")
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "run", str(config), "--json", "--full"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=config.parent,
    )
    assert done.returncode == 1, done.stderr
    assert '"status":"stalled"' in done.stdout
    assert f"left running, since it didn't end when it was cancelled: {left}" in done.stdout
    assert "process.left_running" in done.stderr
    assert "Task was destroyed" not in done.stderr


def test_an_interrupt_of_a_plugins_own_in_a_task_ends_all_and_leaves_no_handler_and_no_loop():
    ended = []

    async def breaks():
        raise KeyboardInterrupt

    async def work():
        try:
            await asyncio.create_task(breaks())
        finally:
            ended.append("work")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(work, **NAMES)
    assert ended == ["work"]
    assert signal.getsignal(signal.SIGINT) is before
