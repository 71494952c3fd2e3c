"""Regular expressions with a deadline.

Python's `re` holds the interpreter while it matches and can't be interrupted, so one pattern that backtracks without end
would hang the whole run. Matching happens in one helper process of the interpreter, started on first use, and killed when
a match takes too long.
"""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

__all__ = ["compiled", "search"]

_SERVE = """
import json, re, sys
from functools import lru_cache
compiled = lru_cache(maxsize=256)(re.compile)
for line in sys.stdin.buffer:
    pattern, flags, text, full = json.loads(line)
    expression = compiled(pattern, flags)
    found = expression.fullmatch(text) if full else expression.search(text)
    sys.stdout.buffer.write(b"1\\n" if found else b"0\\n")
    sys.stdout.buffer.flush()
"""


@lru_cache(maxsize=256)
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern.

    Raises:
        ValueError: it is no regular expression; says where.
    """
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(f"{pattern!r} is no regular expression: {exc}") from exc


def search(pattern: str, flags: int, text: str, *, full: bool, timeout_seconds: float) -> bool:
    """True when the pattern matches somewhere in `text`, or all of it with `full`.

    Raises:
        ValueError: it is no regular expression.
        TimeoutError: matching took longer than `timeout_seconds`.
    """
    compiled(pattern, flags)
    return _matcher.match([pattern, flags, text, full], timeout_seconds)


class _Matcher:
    """The helper process; one match at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def match(self, request: Sequence[str | int | bool], timeout_seconds: float) -> bool:
        """Ask the process, and kill it when it takes too long."""
        with self._lock:
            process = self._running()
            expired = threading.Event()

            def stop() -> None:
                expired.set()
                process.kill()

            timer = threading.Timer(timeout_seconds, stop)
            timer.daemon = True
            timer.start()
            try:
                answer = _ask(process, json.dumps(request).encode() + b"\n")
            finally:
                timer.cancel()
            if answer:
                return answer == b"1\n"
            self._stop()
        if expired.is_set():
            raise TimeoutError(f"the pattern {request[0]!r} took longer than {timeout_seconds:g} s")
        raise RuntimeError(f"the process that matches {request[0]!r} ended")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

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

    def close(self) -> None:
        """End the process; the next match starts another."""
        with self._lock:
            self._stop()


def _ask(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """The answer, empty when the process ended before it gave one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return b""


_matcher = _Matcher()
atexit.register(_matcher.close)
