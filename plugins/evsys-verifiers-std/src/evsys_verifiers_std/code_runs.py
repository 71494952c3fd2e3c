"""Runs a model's code against tests, in processes that it can't reach out of, and says how each part of each test ended.

Tests and code never share a process. Tests of functions run in one sandbox and the code in another, joined by a pipe over
which plain values go; what the tests find goes over a pipe that only they have. A program's output is compared here.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import IO, Any

import attrs

from evsys_verifiers_std.code_sandbox.plain import READY, as_line, from_line
from evsys_verifiers_std.sandbox import Process, spawn

__all__ = ["Bounds", "Part", "SandboxError", "TimeLeft", "pool", "run_program", "run_tests"]

START_SECONDS = 60.0
MOST_OUTPUT = 4 << 20
"""Bytes read of what a process writes; more is too much."""


@cache
def pool() -> ThreadPoolExecutor:
    """Threads that wait for tests: as many as there are processors, so that one test doesn't take another's time.

    They are this module's own, since others that share them would wait for a model's code.
    """
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="evsys-code-tests")


class SandboxError(Exception):
    """The sandbox failed, which says nothing of the code that should have run in it."""


@attrs.frozen(kw_only=True)
class Bounds:
    """The limits of a run, and whether it is in a sandbox."""

    timeout_seconds: float
    memory_mb: int
    file_mb: int
    sandboxed: bool

    def tree(self) -> dict[str, int]:
        """As the processes read them."""
        return {
            "memory": self.memory_mb << 20,
            "file": self.file_mb << 20,
            "seconds": int(self.timeout_seconds) + 2,
            "alone": int(self.sandboxed),
        }


@attrs.define
class TimeLeft:
    """The seconds that the code of one answer may still run; starting a sandbox takes none of them."""

    seconds: float

    @contextmanager
    def running(self) -> Iterator[float]:
        """The moment, on the monotonic clock, at which it has to end; what it took till then is gone."""
        began = time.monotonic()
        try:
            yield began + self.seconds
        finally:
            self.seconds = max(0.0, self.seconds - (time.monotonic() - began))


@attrs.frozen(kw_only=True)
class Part:
    """How a part of a test ended; `error` is None where it passed."""

    test: int
    name: str
    error: str | None


def run_program(code: str, text: str, bounds: Bounds, left: TimeLeft) -> tuple[str, str | None]:
    """Run code as a program that reads `text`: its output, and what went wrong. It isn't run if no time is left.

    Raises:
        SandboxError: it couldn't be started.
    """
    if not left.seconds:
        return "", _too_long(bounds)
    with ExitStack() as stack:
        given = _write_job(stack, {"code": code, "bounds": bounds.tree()})
        typed = stack.enter_context(tempfile.TemporaryFile())
        typed.write(text.encode("utf-8", "replace"))
        typed.seek(0)
        (told, tell), (out, output) = _pipe(stack), _pipe(stack)
        process = _spawn(
            stack,
            "solution",
            (given, tell),
            bounds,
            stdin=typed.fileno(),
            stdout=output.fileno(),
        )
        tell.close()
        output.close()
        if b"".join(_chunks(told, time.monotonic() + START_SECONDS)) != READY:
            raise SandboxError("the sandbox of the code can't be started")
        deadline = stack.enter_context(left.running())
        kept = b""
        for chunk in _chunks(out, deadline):
            kept += chunk
            if len(kept) > MOST_OUTPUT:
                return "", f"it wrote more than {MOST_OUTPUT >> 20} MiB"
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return "", _too_long(bounds)
        return kept.decode("utf-8", "replace"), None if status == 0 else f"it ended with exit code {status}"


def run_tests(
    code: str,
    tests: Sequence[Any],
    bounds: Bounds,
    left: TimeLeft,
    *,
    setup: str,
    entry_point: str | None,
) -> list[Part]:
    """Test the functions of code; every test is in the result, with one part at least.

    Raises:
        SandboxError: a sandbox couldn't be started.
        ValueError: `setup` fails.
    """
    job = {"tests": list(tests), "setup": setup, "entry_point": entry_point, "bounds": bounds.tree()}
    with ExitStack() as stack:
        (results, tell), (asked, ask), (heard, answer) = _pipe(stack), _pipe(stack), _pipe(stack)
        code_given = _write_job(stack, {"code": code, "bounds": bounds.tree()})
        _spawn(stack, "solution", (code_given, answer, asked), bounds)
        _spawn(stack, "tester", (_write_job(stack, job), tell, ask, heard), bounds)
        for end in (tell, asked, ask, heard, answer):
            end.close()
        messages = _messages(results, left.seconds)
        if "ready" not in next(messages, {}):
            raise SandboxError("the sandbox of the code or of the tests can't be started")
        with left.running():
            return _parts(messages, len(tests), bounds)


def _too_long(bounds: Bounds) -> str:
    return f"it wasn't through after {bounds.timeout_seconds:g} s, which is the time of all tests together"


def _parts(messages: Iterator[Mapping[str, Any]], count: int, bounds: Bounds) -> list[Part]:
    """The results in the messages of the tests. A test without a message didn't pass."""
    parts: list[list[str]] = [[""] for _ in range(count)]
    errors: dict[tuple[int, int], str | None] = {}
    stopped: str | None = None
    for message in messages:
        if "unusable" in message:
            raise ValueError(f"the setup of the tests fails: {message['unusable']}")
        if "stopped" in message:
            stopped = f"the code can't be used: {message['stopped']}"
        elif "early" in message:
            stopped = stopped or "the tests ended early"
        elif "parts" in message:
            parts[message["test"]] = message["parts"]
        elif "part" in message:
            errors[message["test"], message["part"]] = message["error"]
    missing = stopped or _too_long(bounds)
    return [
        Part(test=test, name=name, error=errors.get((test, place), missing))
        for test, names in enumerate(parts)
        for place, name in enumerate(names)
    ]


def _messages(results: IO[bytes], seconds: float) -> Iterator[Mapping[str, Any]]:
    """The messages of the tests until they are done; the time starts with the first. `early` says that they never were."""
    buffered, deadline, started, size = b"", time.monotonic() + START_SECONDS, False, 0
    while True:
        chunk = next(_chunks(results, deadline), None)
        if chunk is None:
            if time.monotonic() < deadline:
                yield {"early": True}
            return
        size += len(chunk)
        *lines, buffered = (buffered + chunk).split(b"\n")
        if not started:
            started, deadline = True, time.monotonic() + seconds
        for line in lines:
            message = from_line(line + b"\n")
            if "done" in message:
                return
            yield message
        if size > MOST_OUTPUT:
            return


def _chunks(stream: IO[bytes], deadline: float) -> Iterator[bytes]:
    """The data written to a pipe, until it is closed at its other end or the time is up."""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([stream], [], [], left)
        chunk = os.read(stream.fileno(), 1 << 16) if ready else b""
        if not chunk:
            return
        yield chunk


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return (
        stack.enter_context(os.fdopen(reading, "rb", buffering=0)),
        stack.enter_context(os.fdopen(writing, "wb", buffering=0)),
    )


def _write_job(stack: ExitStack, job: Any) -> IO[bytes]:
    """A job in a file that has no name: unlike a pipe it takes any length at once."""
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(as_line(job))
    file.seek(0)
    return file


def _spawn(
    stack: ExitStack, module: str, ends: Sequence[IO[bytes]], bounds: Bounds, **streams: int
) -> Process:
    try:
        process = spawn(module, [end.fileno() for end in ends], sandboxed=bounds.sandboxed, **streams)
    except OSError as exc:
        raise SandboxError(f"a process of the sandbox can't be started: {exc}") from exc
    stack.enter_context(_killing_session(process))
    return process


@contextmanager
def _killing_session(process: Process) -> Iterator[None]:
    """End a process and all of its session with the block; of a sandbox nothing outlives its first process."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
