"""Work with a deadline that holds: in a process of its own, which is killed when it takes too long.

Neither a regular expression that backtracks without end nor computer algebra can be interrupted from within, and both hold the
interpreter meanwhile. A program reads one JSON request a line from standard input and writes one JSON answer a line to
standard output, after a first line that says that it is ready.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

__all__ = ["HelperProcess"]

START_SECONDS = 120.0
_TICK = 0.02
"""Seconds between two looks at the clock: as much longer may a request take."""


class HelperProcess:
    """A Python process, started when it is first asked, again after it was killed, and one request at a time.

    Args:
        arguments: of the interpreter.
        name: what it does, for messages.
    """

    def __init__(self, arguments: Sequence[str], name: str) -> None:
        self._arguments = arguments
        self._name = name
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch = _Watch()
        atexit.register(self.close)

    def ask(self, request: Any, timeout_seconds: float, what: str) -> Any:
        """The answer to a request, both JSON values.

        Raises:
            TimeoutError: it took longer than `timeout_seconds`; the time to start the process doesn't count.
            RuntimeError: the process can't be started, or ended instead of answering.
        """
        with self._lock:
            process = self._running()
            answer, expired = self._within(timeout_seconds, process, json.dumps(request).encode() + b"\n")
            if answer:
                return json.loads(answer)
            self._stop()
        if expired:
            raise TimeoutError(f"{what} took longer than {timeout_seconds:g} s")
        raise RuntimeError(f"the process that {self._name} ended without an answer to {what}")

    def close(self) -> None:
        """End the process; the next request starts another."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            import subprocess  # here, so that `evsys validate` doesn't wait for it

            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            ready, _ = self._within(START_SECONDS, self._process, b"")
            if not ready:
                self._stop()
                raise RuntimeError(f"the process that {self._name} can't be started")
        return self._process

    def _within(self, seconds: float, process: subprocess.Popen[bytes], request: bytes) -> tuple[bytes, bool]:
        """The next line of the process, empty when it ended before; and whether it was killed for taking too long."""
        self._watch.begin(process, seconds)
        try:
            line = _exchange(process, request)
        finally:
            expired = self._watch.end()
        return line, expired

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was left to send has no reader any more
                    stream.close()


class _Watch:
    """Kills a process whose time is up.

    One thread looks at the clock now and then, so that a request costs no thread of its own; it ends when there has been
    nothing to watch for some seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._expired = False
        self._idle = 0
        self._alive = False

    def begin(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        with self._lock:
            self._process, self._deadline, self._expired = process, time.monotonic() + seconds, False
            if not self._alive:
                self._alive = True
                threading.Thread(target=self._look, daemon=True, name="evsys-deadlines").start()

    def end(self) -> bool:
        """True when the process was killed since `begin`."""
        with self._lock:
            self._process = None
            return self._expired

    def _look(self) -> None:
        while True:
            time.sleep(_TICK)
            with self._lock:
                process = self._process
                self._idle = 0 if process is not None else self._idle + 1
                if process is not None and time.monotonic() > self._deadline:
                    self._expired = True
                    self._process = None
                    process.kill()
                if self._idle * _TICK > 5:
                    self._alive = False
                    return


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        return b""
    return line if line.endswith(b"\n") else b""
