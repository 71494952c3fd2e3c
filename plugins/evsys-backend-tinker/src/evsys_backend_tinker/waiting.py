"""Waiting for a server: for so long by kind of call, and no longer than it answers at all.

The client polls for a result without any limit, also where the server is gone. So each wait looks, every few seconds, whether
the server still answers, and ends where it hasn't for a time, or where the call has taken longer than its kind may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import attrs

from evsys.errors import BackendError
from evsys.protocols import Log
from evsys_backend_tinker.config import Deadlines
from evsys_backend_tinker.daemon import in_daemon_thread
from evsys_backend_tinker.http_json import JsonApi, UnreachableError
from evsys_runtime.accounting.breaker import Breaker
from evsys_runtime.accounting.clock import Clock, SystemClock

__all__ = ["HEALTH", "Kind", "Waiting", "ignore_failure"]

Kind = Literal["connect", "create", "train", "save", "sample", "close"]
HEALTH = "/api/v1/healthz"

_FIRST_WORD = 30.0  # seconds of waiting before the first log line; the next after twice as many, and so on
_PROBE_SECONDS = 5.0


@attrs.define(kw_only=True, eq=False)
class Waiting:
    """Waits for the calls of one run.

    Args:
        api: the server, for asking whether it answers.
        deadlines: by kind of call.
        dead_after: seconds without an answer after which the server is taken to be down.
        log: is notified of long waits, and of a server that stops and starts to answer.
        every: seconds between two looks.
        clock: measures time.
        breaker: gets reports whether the server answers, if given.
    """

    api: JsonApi
    deadlines: Deadlines = attrs.field(factory=Deadlines)
    dead_after: float = 120.0
    log: Log | None = None
    every: float = 5.0
    clock: Clock = attrs.field(factory=SystemClock)
    breaker: Breaker | None = None
    _silent_since: float | None = None
    _why: str = ""
    _looked: float = float("-inf")
    _looking: asyncio.Lock | None = None
    _told: dict[Kind, float] = attrs.field(factory=dict)

    @property
    def silent(self) -> bool:
        """True while the server was seen not to answer."""
        return self._silent_since is not None

    async def for_call(self, future: asyncio.Future[Any], kind: Kind) -> Any:
        """The call's result. The call itself continues where the wait is given up: its submitter decides its fate.

        Raises:
            BackendError: it took too long, or the server has stopped to answer.
            Exception: what the call ended with.
        """
        found = await self._wait_until_done(future, kind)
        if self.breaker is not None:
            self.breaker.succeeded()  # what comes back has come from the server
        return found

    async def _wait_until_done(self, future: asyncio.Future[Any], kind: Kind) -> Any:
        started, word = self.clock.now(), _FIRST_WORD
        deadline = getattr(self.deadlines, kind)
        future.add_done_callback(
            ignore_failure
        )  # where the wait is given up, no one wants to know how it ended
        while not future.done():
            waited = self.clock.now() - started
            if waited >= deadline:
                raise self.too_long(kind)
            await asyncio.wait({future}, timeout=min(self.every, deadline - waited))
            if future.done():
                break
            await self.look()
            waited = self.clock.now() - started
            if waited >= word:
                self._tell_of_wait(kind, waited)
                word *= 2
        return future.result()

    def too_long(self, kind: Kind) -> BackendError:
        """The error of a call that has exceeded the deadline of its kind."""
        return BackendError(
            f"the server at {self.api.base_url} hasn't finished a call ({kind}) within {getattr(self.deadlines, kind):g} s",
            hint=f"it may be paused; raise backend.params.deadlines.{kind} to wait longer",
        )

    async def in_thread(self, call: Callable[[], Any], kind: Kind) -> Any:
        """The result of a blocking call, made in a thread."""
        future = asyncio.wrap_future(in_daemon_thread(call, f"tinker-{kind}"))
        return await self._wait_until_done(future, kind)

    async def look(self) -> None:
        """Ask the server whether it is there, unless someone has just asked.

        Raises:
            BackendError: it hasn't answered for `dead_after` seconds.
        """
        if self._looking is None:
            self._looking = asyncio.Lock()
        async with self._looking:
            if self.clock.now() - self._looked >= self.every:
                await self._ask()
                self._looked = self.clock.now()
        if self._silent_since is None:
            return
        silent = self.clock.now() - self._silent_since
        if silent >= self.dead_after:
            raise BackendError(
                f"the server at {self.api.base_url} hasn't answered for {silent:.0f} s ({self._why})",
                hint="start it again and resume the run, or raise backend.params.dead_after",
            )

    async def until_there(self) -> None:
        """Return when the server answers.

        Raises:
            BackendError: it hasn't for `dead_after` seconds.
        """
        self._looked = float("-inf")
        await self.look()
        while self._silent_since is not None:
            await asyncio.sleep(self.every)
            await self.look()

    async def _ask(self) -> None:
        why = await self._health()
        if self.breaker is not None:
            if why is None:
                self.breaker.succeeded()
            else:
                self.breaker.failed(why, self._health)
        if why is None:
            if self._silent_since is not None:
                self._tell("server.back", seconds=round(self.clock.now() - self._silent_since))
            self._silent_since = None
        else:
            self._why = why
            if self._silent_since is None:
                self._silent_since = self.clock.now()
                self._tell("server.silent", reason=why)

    async def _health(self) -> str | None:
        """The fault of the server; None if it answers."""
        call = in_daemon_thread(lambda: self.api.get(HEALTH, seconds=_PROBE_SECONDS), "tinker-health")
        try:
            answer = await asyncio.wrap_future(call)
        except UnreachableError as error:
            return str(error)
        return f"it answers {answer.reason}" if answer.status >= 500 else None

    def _tell_of_wait(self, kind: Kind, waited: float) -> None:
        """Log a wait, once for all calls of a kind that wait at the same time."""
        now = self.clock.now()
        if (
            now - self._told.get(kind, float("-inf")) >= waited / 4
        ):  # they didn't begin at quite the same time
            self._told[kind] = now
            self._tell("call.waiting", call=kind, seconds=round(waited))

    def _tell(self, event: str, **facts: Any) -> None:
        if self.log is not None:
            self.log.warning(event, server=self.api.base_url, **facts)


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """No one needs to await every call: a failure is raised where it is awaited, and otherwise ignored."""
    if not future.cancelled():
        future.exception()
