"""A gate before the agents of a wave: all of them start at once, in their order, so that a sampler sees the same batches."""

from __future__ import annotations

import asyncio

__all__ = ["Gate"]


class Gate:
    """Used on one event loop. A trial is expected before it starts, arrives when its agent could act, and leaves when it ends.

    Trials are set up one after another, so their agents would come to the model one by one. One that never arrives, since its
    environment failed, holds no one up once it has left.
    """

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self._arrived: dict[int, asyncio.Future[None]] = {}

    def expect(self, place: int) -> None:
        """Keep the gate shut until the trial at this place arrives or leaves."""
        self._expected.add(place)

    async def arrive(self, place: int) -> None:
        """Wait until all that are expected are here."""
        self._expected.add(place)
        loop = asyncio.get_running_loop()
        opened = self._arrived[place] = loop.create_future()
        loop.call_soon(self._open_if_complete)  # not at once: the last to come would be the first to go
        try:
            await opened
        finally:
            self.leave(place)

    def leave(self, place: int) -> None:
        """Expect this one no longer."""
        self._expected.discard(place)
        self._arrived.pop(place, None)
        self._open_if_complete()

    def _open_if_complete(self) -> None:
        if self._expected - self._arrived.keys():
            return
        for place in sorted(self._arrived):
            if not self._arrived[place].done():
                self._arrived[place].set_result(None)
