"""The key of a server: compared in constant time, and slow to guess."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import attrs

from evsys_record.encoding import utf8

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["Caller", "KeyCheck", "WrongKeys"]

FREE = 3
"""Wrong keys in a row answered at once: a wrongly configured client sees why without a wait."""

LONGEST_DELAY = 5.0
FORGET_SECONDS = 300.0
ADDRESSES = 4096
DELAYED = 64
"""Answers held back at once. Beyond that wrong keys are refused at once again, or waiting would be a way to fill the server."""


class Caller(Protocol):
    """A request: the address that it came from, and its path."""

    @property
    def remote(self) -> str | None: ...

    @property
    def path(self) -> str: ...


@attrs.define
class _Failures:
    count: int = 0
    last: float = 0.0


class WrongKeys:
    """Counts wrong keys by address, and holds their answers back, so that guessing is slow.

    From the fourth in a row on, the answer takes twice as long each time, up to 5 seconds, and the log has a line at
    every power of two, so guessing fills no disk. Right keys never wait.

    Args:
        log: gets `key.refused` with the address and its count.
        clock: seconds on a clock that is never set back.
        sleep: how to wait.
    """

    def __init__(
        self,
        *,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._delayed = 0

    async def hold(self, request: Caller) -> None:
        """Count a wrong key, and wait as long as its address has earned."""
        address = request.remote or "unknown"
        count = self._count(address)
        if self._log is not None and count & (count - 1) == 0:
            self._log.warning("key.refused", address=address, count=count, path=request.path[:200])
        if count <= FREE or self._delayed >= DELAYED:
            return
        self._delayed += 1
        try:
            await self._sleep(min(LONGEST_DELAY, 0.1 * 2.0 ** min(count - FREE, 16)))
        finally:
            self._delayed -= 1

    def _count(self, address: str) -> int:
        now = self._clock()
        failures = self._failures.setdefault(address, _Failures())
        if now - failures.last > FORGET_SECONDS:
            failures.count = 0
        failures.count += 1
        failures.last = now
        self._failures.move_to_end(address)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)
        return failures.count


class KeyCheck:
    """Whether requests have the key. Wrong ones wait as `WrongKeys` says.

    Args:
        key: the key; None accepts every request.
        log: see `WrongKeys`.
        clock: see `WrongKeys`.
        sleep: see `WrongKeys`.
    """

    def __init__(
        self,
        key: str | None,
        *,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._key = None if key is None else utf8(key)
        self._wrong = WrongKeys(log=log, clock=clock, sleep=sleep)

    async def accepts(self, request: Caller, given: str) -> bool:
        """Whether `given` is the key. Returns False after the delay that its address has earned."""
        if self._key is None or hmac.compare_digest(utf8(given), self._key):
            return True
        await self._wrong.hold(request)
        return False
