"""A breaker for each service: if one fails for long, calls to it stop, and work that needs it ends before money is
wasted.

All calls of a process to one address share a breaker, as they share a limiter. It is closed while calls succeed now
and then. If none has for `open_after` seconds, it opens: calls fail at once and say why, and only one at a time is
let through after a cool-down, to see whether the service is back. An experiment looks that up by itself
(`Outages`), so that it needn't have other calls to make, and is stopped if the service stays away for
`give_up_after` seconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from weakref import WeakValueDictionary

import attrs

from evsys.errors import PLUGIN_FAILURES, BackendError
from evsys_runtime.accounting.clock import Clock, SystemClock

__all__ = [
    "Breaker",
    "BreakerSettings",
    "Outages",
    "ServiceDownError",
    "shared_breaker",
    "use_outages",
]

PROBE_SECONDS = 60.0
"""How long the service may take to answer whether it is back."""

type Probe = Callable[[], Awaitable[str | None]]
"""Asks the service again; what is wrong with it, None where it answered."""


class ServiceDownError(BackendError):
    """A service wasn't asked, since it has failed for long. Its cause is an `OSError`: a later call may succeed."""


@attrs.frozen(kw_only=True)
class BreakerSettings:
    """When a breaker opens: after so many `failures` in a row, over `open_after` seconds, or after so many `refusals` in a row, however
    fast. The cool-down doubles with each failed probe, up to `longest_cool_down`. A pause of `forget_after` seconds without any call
    starts a new row.
    """

    failures: int = 5
    refusals: int = 20
    open_after: float = 30.0
    cool_down: float = 15.0
    longest_cool_down: float = 120.0
    give_up_after: float = 900.0
    forget_after: float = 300.0


class Breaker:
    """See the module.

    Args:
        service: its name, for messages.
        settings: when it opens.
        clock: seconds.
    """

    def __init__(
        self, service: str, *, settings: BreakerSettings | None = None, clock: Clock | None = None
    ) -> None:
        self.service = service
        self.settings = settings or BreakerSettings()
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()  # event loops of several threads share a breaker
        self._reason = ""
        self._probe: Probe | None = None
        self._answered = float("-inf")
        self._reset()

    def _reset(self) -> None:
        self._failures = self._refusals = 0
        self._since = self._last = self._probe_at = float("-inf")
        self._open = self._probing = False
        self._cool_down = self.settings.cool_down
        self._probe = None

    # --- calls ----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True while calls fail at once."""
        return self._open

    @property
    def has_given_up(self) -> bool:
        """True where the service has stayed away for as long as anyone waits for it."""
        return self._open and self._last - self._since >= self.settings.give_up_after

    def check(self) -> None:
        """Say so where a call would be in vain.

        Raises:
            ServiceDownError: the service is down, and it isn't time to look again.
        """
        if self._is_in_vain():
            _current_outages(self)
            raise self.error()

    def _is_in_vain(self) -> bool:
        return self._open and (self._probing or self.clock.now() < self._probe_at)

    @contextmanager
    def attempt(self) -> Iterator[Breaker]:
        """Make a request inside, and say how it went; where no one does, it counts for nothing.

        Raises:
            ServiceDownError: see `check`.
        """
        with self._lock:
            in_vain = self._is_in_vain()
            is_probe = self._open and not in_vain
            self._probing |= is_probe
        if in_vain:
            _current_outages(self)
            raise self.error()
        try:
            yield self
        finally:
            if is_probe:
                with self._lock:
                    self._probing = False

    def succeeded(self) -> None:
        """The service answered, if only that this one request is wrong."""
        with self._lock:
            was_open = self._open
            self._answered = self.clock.now()
            self._reset()
        if was_open:
            _current_outages(self)

    def failed(self, reason: str, probe: Probe | None = None, *, began: float | None = None) -> None:
        """The service could not be reached, was silent, or failed.

        Args:
            reason: for messages.
            probe: repeats the request.
            began: when the request was sent; silence since then, or since the last answer to any other request,
                counts.
        """
        self._count(reason, probe, self.clock.now() if began is None else began)

    def refused(self, reason: str, probe: Probe | None = None) -> None:
        """The service refused in a way that any request would meet: a wrong key or address, no quota, an answer in another format."""
        self._count(reason, probe, self.clock.now(), refusals=1)

    def _count(self, reason: str, probe: Probe | None, began: float, *, refusals: int = 0) -> None:
        settings = self.settings
        with self._lock:
            now = self.clock.now()
            silent = max(began, self._answered)
            if not self._open and silent - self._last > settings.forget_after:
                self._failures, self._refusals, self._since = 0, 0, silent
            self._failures += 1
            self._refusals += refusals
            self._since = min(self._since, silent)
            self._last, self._reason = now, reason
            self._probe = probe or self._probe
            if self._open:
                self._cool_down = min(2 * self._cool_down, settings.longest_cool_down)
                self._probe_at = now + self._cool_down
            elif self._refusals >= settings.refusals or (
                self._failures >= settings.failures and now - self._since >= settings.open_after
            ):
                self._open, self._probe_at = True, now + self._cool_down
            is_open = self._open
        if is_open:
            _current_outages(self)

    def error(self) -> ServiceDownError:
        """Why no one asks the service."""
        seconds = self.clock.now() - self._since
        error = ServiceDownError(
            f"{self.service} wasn't asked: it has failed for {seconds:,.0f} s, at last with: {self._reason}",
            hint="see whether the service runs, then resume",
            plugin=self.service,
        )
        error.__cause__ = ConnectionError(self._reason)
        return error

    # --- looking again --------------------------------------------------------------------------------------------

    async def look_again(self) -> None:
        """Wait for the cool-down to pass, and ask the service again, unless a call does."""
        await self.clock.sleep(max(0.0, self._probe_at - self.clock.now()))
        probe = self._probe
        if probe is None or self._is_in_vain():  # a call asks it just now, or no one here can
            await self.clock.sleep(self.settings.cool_down)
            return
        with self.attempt():
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    reason = await probe()
            except PLUGIN_FAILURES as exc:
                reason = f"{type(exc).__name__}: {exc}"
            if reason is None:
                self.succeeded()
            else:
                self.failed(reason)


class Outages:
    """The unreachable services, as far as the work of one experiment has met them. It belongs to the running event
    loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._met: set[Breaker] = set()
        self._changed = asyncio.Event()

    @property
    def are_there(self) -> bool:
        """True while a service is down."""
        return any(breaker.is_open for breaker in tuple(self._met))

    def reasons(self) -> list[str]:
        """Why each unreachable service is not asked, and until when it is waited for."""
        down = (breaker for breaker in tuple(self._met) if breaker.is_open)
        return [
            f"{breaker.error().message}; no arm is started until it answers, and the experiment ends after "
            f"{breaker.settings.give_up_after:,.0f} s of failures"
            for breaker in down
        ]

    def note(self, breaker: Breaker) -> None:
        """A breaker opened, stayed open or closed; from any thread."""
        self._met.add(breaker)
        with suppress(RuntimeError):  # the loop is closed: no one waits any more
            self._loop.call_soon_threadsafe(self._changed.set)

    async def change(self, *, before: bool) -> None:
        """Wait until `are_there` isn't what it was `before`: what the caller saw, which may be past by the time this begins."""
        while self.are_there == before:
            self._changed.clear()
            await self._changed.wait()

    async def given_up(self) -> ServiceDownError:
        """Look again after unreachable services, and return once one of them stays away for too long."""
        while True:
            down = [breaker for breaker in tuple(self._met) if breaker.is_open]
            for breaker in down:
                await breaker.look_again()
                if breaker.has_given_up:
                    return breaker.error()
                self._changed.set()
            if not down:
                await self.change(before=False)


_here: ContextVar[Outages | None] = ContextVar("evsys_outages", default=None)


def _current_outages(breaker: Breaker) -> None:
    outages = _here.get()
    if outages is not None:
        outages.note(breaker)


@contextmanager
def use_outages() -> Iterator[Outages]:
    """Report the state of breakers used inside, in this task and those started from it, to the yielded outages."""
    outages = Outages()
    token = _here.set(outages)
    try:
        yield outages
    finally:
        _here.reset(token)


_shared: WeakValueDictionary[str, Breaker] = WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_breaker(service: str, settings: BreakerSettings | None = None) -> Breaker:
    """The breaker of a service, the same for all who name it; it is forgotten when no one holds it any more.

    Who names it first gives the settings.
    """
    with _shared_lock:
        breaker = _shared.get(service)
        if breaker is None:
            breaker = _shared[service] = Breaker(service, settings=settings)
        return breaker
