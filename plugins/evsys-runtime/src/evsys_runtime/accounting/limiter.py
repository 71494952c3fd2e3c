"""How many calls to one service may be made: at once, in any minute, and with how many tokens.

All arms of a process share one limiter a service, regardless of event loop and thread. Who comes first goes first.
Counts are kept over a sliding minute, so a limit holds in any 60 seconds, not only in those of a calendar.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import attrs

from evsys_runtime.accounting.clock import Clock, SystemClock

__all__ = ["Limiter", "Limits", "Slot", "shared_limiter"]

WINDOW_SECONDS = 60.0


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one service; None is unlimited. The minute is any 60 seconds."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def per_minute(self) -> bool:
        """True when what happened in the last minute matters."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def tightened(self, other: Limits) -> Limits:
        """The smaller of each bound."""
        return Limits(
            requests_per_minute=_smaller(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute=_smaller(self.tokens_per_minute, other.tokens_per_minute),
            concurrency=_smaller(self.concurrency, other.concurrency),
        )


def _smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


@attrs.define(kw_only=True, eq=False)
class Slot:
    """The right to make one call. `tokens` is what it is counted with, an estimate until `used` corrects it."""

    started: float
    tokens: int

    def used(self, tokens: int) -> None:
        """Say how many tokens the call really took."""
        self.tokens = tokens


class _Ticket:
    """A caller's place in the queue, with what wakes it in its own event loop."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.loop = asyncio.get_running_loop()
        self.woken = asyncio.Event()

    def wake(self) -> None:
        """Let the caller look again; from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.woken.set)


class Limiter:
    """Lets calls through in the order in which they come, as fast as the limits allow.

    A call that alone has more tokens than a minute may have goes when nothing else counts: it could never go otherwise.
    """

    def __init__(self, limits: Limits | None = None, *, clock: Clock | None = None) -> None:
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # event loops of several threads share a limiter
        self._queue: deque[_Ticket] = deque()
        self._recent: deque[Slot] = deque()
        self._running = 0

    @property
    def limits(self) -> Limits:
        """The bounds in force."""
        return self._limits

    @property
    def running(self) -> int:
        """Calls under way."""
        return self._running

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._queue)

    def tighten(self, limits: Limits) -> None:
        """Keep to `limits` too, from here on."""
        with self._lock:
            self._limits = self._limits.tightened(limits)

    @asynccontextmanager
    async def slot(self, tokens: int = 0) -> AsyncIterator[Slot]:
        """Wait for the right to make one call, and hold it inside. Cancelled while it waits, it leaves no trace.

        Args:
            tokens: how many the call may take; `Slot.used` corrects it.
        """
        slot = await self._acquire(tokens)
        try:
            yield slot
        finally:
            with self._lock:
                self._running -= 1
                self._wake_first()

    async def _acquire(self, tokens: int) -> Slot:
        ticket = _Ticket(tokens)
        with self._lock:
            self._queue.append(ticket)
        try:
            while True:
                with self._lock:
                    ticket.woken.clear()
                    wait = self._wait_of(ticket)
                    if wait == 0.0:
                        self._running += 1
                        slot = Slot(started=self._clock.now(), tokens=tokens)
                        if self._limits.per_minute:
                            self._recent.append(slot)
                        return slot
                if wait is None:
                    await ticket.woken.wait()
                else:
                    await self._clock.sleep(wait)
        finally:
            with self._lock:
                self._queue.remove(ticket)
                self._wake_first()

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].wake()

    def _wait_of(self, ticket: _Ticket) -> float | None:
        """Seconds until it is worth looking again, 0 when the ticket may go, None when someone else must end first."""
        limits = self._limits
        if self._queue[0] is not ticket:
            return None
        if limits.concurrency is not None and self._running >= limits.concurrency:
            return None
        now = self._clock.now()
        while self._recent and self._recent[0].started + WINDOW_SECONDS <= now:
            self._recent.popleft()
        leaving = max(
            self._too_many(limits.requests_per_minute, [1] * len(self._recent), 1),
            self._too_many(limits.tokens_per_minute, [slot.tokens for slot in self._recent], ticket.tokens),
        )
        if not leaving:
            return 0.0
        return self._recent[leaving - 1].started + WINDOW_SECONDS - now

    @staticmethod
    def _too_many(bound: int | None, counts: list[int], more: int) -> int:
        """How many of the oldest counts must leave the window before `more` fits under `bound`."""
        if bound is None:
            return 0
        total = sum(counts)
        leaving = 0
        while leaving < len(counts) and total + more > bound:
            total -= counts[leaving]
            leaving += 1
        return leaving


_shared: WeakValueDictionary[str, Limiter] = WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_limiter(service: str, limits: Limits) -> Limiter:
    """The limiter of a service, the same for all who name it; where they ask for different bounds, the tightest
    hold.

    It is a fact of the process, not of an experiment: a provider counts the calls of an account, regardless of the
    caller. It is forgotten when no one holds it any more.
    """
    with _shared_lock:
        limiter = _shared.get(service)
        if limiter is None:
            limiter = _shared[service] = Limiter()
        limiter.tighten(limits)
        return limiter
