"""A bound on the requests served at once and that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evsys_runtime.serving.errors import ApiError

__all__ = ["Gate"]


class Gate:
    """Lets `running` requests in, lets `waiting` more wait, and sends the others away.

    Args:
        running: requests served at once.
        waiting: requests that wait alongside those.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._room = running + waiting
        self._inside = 0
        self._places = asyncio.Semaphore(running)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for a place and hold it.

        Raises:
            ApiError: as many wait as may; the client should come again.
        """
        if self._inside >= self._room:
            raise ApiError(
                429,
                f"{self._inside} requests are served or wait here already",
                code="queue_full",
                retry_after=1,
            )
        self._inside += 1
        try:
            async with self._places:
                yield
        finally:
            self._inside -= 1
