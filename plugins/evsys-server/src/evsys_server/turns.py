"""The requests of one model, run one after another in the order of their sequence ids, regardless of their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs

from evsys_server.errors import RefusedError
from evsys_server.promises import Answer, Promise, failure

__all__ = ["Turns"]

type Work = Callable[[], Awaitable[Answer]]


@attrs.frozen(eq=False)
class _Turn:
    promise: Promise
    work: Work
    size: int


class Turns:
    """A queue that waits for the next sequence id.

    A client may give up between two ids, and a dispatch may get lost for good. Then nothing waits for ever: after
    `patience` seconds without the missing id, what came after it fails and the order continues behind it.

    Args:
        first: the first id.
        patience: seconds to wait for a missing id.
        most: requests that may wait.
        most_bytes: bytes of requests that may wait.
    """

    def __init__(
        self, *, first: int = 0, patience: float = 360.0, most: int = 1024, most_bytes: int = 1 << 30
    ) -> None:
        self.next = first
        self._patience = patience
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: dict[int, _Turn] = {}
        self._bytes = 0
        self._runner: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._closed: str | None = None

    def check(self, seq_id: int, size: int) -> None:
        """Whether a request may come in.

        Raises:
            RefusedError: the model is gone, its turn is over, or too many wait. The next one in turn always may.
        """
        if self._closed is not None:
            raise RefusedError(410, self._closed)
        if seq_id < self.next:
            raise RefusedError(410, f"request {seq_id} of this model was answered long ago")
        full = len(self._waiting) >= self._most or self._bytes + size > self._most_bytes
        if full and seq_id != self.next:
            raise RefusedError(
                429, f"{len(self._waiting)} requests of this model wait already", retry_after=1
            )

    def add(self, seq_id: int, promise: Promise, work: Work, size: int = 0) -> None:
        """Let a request wait for its turn; `check` was called before."""
        self._waiting[seq_id] = _Turn(promise, work, size)
        self._bytes += size
        if self._runner is None:
            self._go_on()

    def _go_on(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.next in self._waiting:
            self._runner = asyncio.get_running_loop().create_task(self._run())
        elif self._waiting:
            self._alarm = asyncio.get_running_loop().call_later(self._patience, self._give_up)

    async def _run(self) -> None:
        try:
            while (turn := self._waiting.pop(self.next, None)) is not None:
                self._bytes -= turn.size
                try:
                    await turn.promise.fulfil(turn.work())
                except asyncio.CancelledError:
                    turn.promise.settle(failure(self._closed or "the request was cancelled", "user"))
                    raise
                self.next += 1
        finally:
            self._runner = None
        if self._closed is None:
            self._go_on()

    def _give_up(self) -> None:
        missing, self._alarm = self.next, None
        self.next = max(self._waiting) + 1
        self._fail(f"request {missing} of this model never came, so those after it can't run")

    def _fail(self, message: str) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for turn in waiting.values():
            turn.promise.settle(failure(message, "user"))

    async def close(self, why: str) -> None:
        """Take nothing more, fail what waits, and end what runs."""
        self._closed = why
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._fail(why)
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait((self._runner,))
