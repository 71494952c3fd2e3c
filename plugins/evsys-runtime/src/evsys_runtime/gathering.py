"""Calls that come together are taken together.

Calls that arrive while the event loop works through what is ready are one batch. So what makes it up depends on the program alone,
never on time: a wave of rollouts started together is a batch, wherever it is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["IDLE_TURNS", "Gathering", "call_when_cancelled"]

IDLE_TURNS = 3
"""Turns of the event loop without a new call after which a batch is complete: a task just started makes its call
within that many.
"""


class Gathering[T]:
    """Gathers calls, and hands them on in the order in which they came.

    Args:
        take: is given each batch, in the event loop.
    """

    def __init__(self, take: Callable[[list[T]], None]) -> None:
        self.waiting: list[T] = []
        self._take = take
        self._watching = False
        self._seen = 0
        self._idle = 0

    def add(self, call: T) -> None:
        """Let a call wait for its batch; `watch` sees to it that it is taken."""
        self.waiting.append(call)

    def watch(self) -> None:
        """Watch for incoming calls, unless that is being done. Calls already waiting belong to this batch."""
        if not self._watching:
            self._watching = True
            self._seen, self._idle = 0, 0
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if len(self.waiting) > self._seen:
            self._seen, self._idle = len(self.waiting), 0
        else:
            self._idle += 1
        if self._idle < IDLE_TURNS:
            asyncio.get_running_loop().call_soon(self._look)
            return
        self._watching = False
        batch, self.waiting = self.waiting, []
        self._take(batch)


def call_when_cancelled(outcomes: Sequence[asyncio.Future[Any]], then: Callable[[], object]) -> None:
    """Call `then` once all outcomes of a batch are cancelled, so that is not awaited it any more."""
    waited_for = len(outcomes)

    def ended(outcome: asyncio.Future[Any]) -> None:
        nonlocal waited_for
        waited_for -= outcome.cancelled()
        if waited_for == 0:
            then()

    for outcome in outcomes:
        outcome.add_done_callback(ended)
