"""The namespaces of one sandbox: held open by a first process, entered by each command, and all gone when that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from evsys.errors import RolloutError

__all__ = ["Namespaces", "remove_tree"]

_SAFE = ("--unshare-ipc", "--unshare-uts", "--die-with-parent", "--cap-drop", "ALL")
_START_SECONDS = 30.0
_KILL_SECONDS = 5.0


class Namespaces:
    """Namespaces of users and processes, and of the network where it isn't shared.

    They are entered through descriptors opened once, so that a process number given again can't lead elsewhere.

    Args:
        network: share this machine's network.
    """

    def __init__(self, *, network: bool) -> None:
        self._network = network
        self._first: asyncio.subprocess.Process | None = None
        self._facts: IO[bytes] | None = None
        self._pidfd: int | None = None
        self._open: dict[str, int] = {}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that an entering process needs."""
        return tuple(self._open.values())

    def entering(self) -> list[str]:
        """The beginning of a command line that runs something inside; mounts and the command follow."""
        if not self._open:
            raise RolloutError("the sandbox isn't started, or was stopped")
        joined = [
            f"--{name}=/proc/self/fd/{self._open[name]}" for name in ("user", "net") if name in self._open
        ]
        return [
            *(_program("nsenter"), *joined, "--preserve-credentials"),
            *(_program("bwrap"), "--pidns", str(self._open["pid"]), *_SAFE),
        ]

    async def open(self, mounts: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Start the first process.

        Raises:
            RolloutError: this machine doesn't allow it.
        """
        reading, writing = os.pipe()
        self._facts = os.fdopen(reading, "rb")
        starting = asyncio.ensure_future(self._begin(mounts, environment, writing))
        try:
            self._first = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Cancelled while it connects a process's pipes, asyncio would leave them open, and may wait for ever.
            self._first = await starting
            raise
        finally:
            os.close(writing)
        await self._ready(self._first)

    async def close(self) -> None:
        """Kill all that is inside, and wait until it is gone. Safe to call twice."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
        await self._find_unready()
        if self._pidfd is not None:
            pidfd, self._pidfd = self._pidfd, None
            try:
                await asyncio.to_thread(_kill, pidfd)
            finally:
                os.close(pidfd)
        if self._first is not None:
            first, self._first = self._first, None
            await _wait_for_process(first)

    async def _begin(
        self, mounts: Sequence[str], environment: Mapping[str, str], facts: int
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(_program("bwrap"), "--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", *_SAFE),
            *([] if self._network else ["--unshare-net"]),
            *mounts,
            *("--info-fd", str(facts), "--", "sh", "-c", "echo ready; exec sleep infinity"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            pass_fds=[facts],
            start_new_session=True,
        )

    async def _ready(self, first: asyncio.subprocess.Process) -> None:
        assert first.stdout is not None
        assert first.stderr is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                said = await first.stdout.readline()
        except TimeoutError as exc:
            raise RolloutError(f"the sandbox wasn't ready after {_START_SECONDS:g} s") from exc
        if said != b"ready\n":
            reason = (await first.stderr.read()).decode("utf-8", "replace").strip()
            raise RolloutError(
                f"bubblewrap can't make a sandbox here: {reason or 'no output'}",
                hint="it needs user namespaces, which containers and some distributions forbid; name another environment",
            )
        assert self._facts is not None
        facts, self._facts = self._facts, None
        with facts:
            pid = json.loads(facts.read())["child-pid"]  # it is ready, so they are written
        self._pidfd = os.pidfd_open(pid)
        for name in ("user", "pid") if self._network else ("user", "pid", "net"):
            self._open[name] = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)

    async def _find_unready(self) -> None:
        """The first process inside, where the start failed or was cancelled before that was ready."""
        if self._facts is None:
            return
        facts, self._facts = self._facts, None
        with facts:
            said = await asyncio.to_thread(facts.read) if self._first is not None else b""
        if said:
            try:
                self._pidfd = os.pidfd_open(json.loads(said)["child-pid"])
            except ProcessLookupError:
                return  # it has ended, and bubblewrap has seen it


async def _wait_for_process(first: asyncio.subprocess.Process) -> None:
    """Wait for the process outside, which waits for the one inside; killed at once, it would leave that behind as a zombie."""
    told = asyncio.create_task(first.communicate())
    done, _ = await asyncio.wait([told], timeout=_KILL_SECONDS)
    if not done:
        first.kill()
    await told


def _program(name: str) -> str:
    """The path of a program: the sandbox's own search path isn't this machine's."""
    found = shutil.which(name)
    if found is None:
        raise RolloutError(f"a sandbox needs {name}, which this machine doesn't have")
    return found


def _kill(pidfd: int) -> None:
    """Kill the first process of a namespace of processes, with which the kernel kills all others; wait for its end."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    ended.poll(_KILL_SECONDS * 1000)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, regardless of the permissions of its folders."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for place, _, _ in os.walk(folder):
            Path(place).chmod(0o700)
        shutil.rmtree(folder)
