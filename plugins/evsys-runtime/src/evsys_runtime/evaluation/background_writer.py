"""Rollouts on record, written in a thread of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from evsys_runtime.background import in_background

if TYPE_CHECKING:
    from evsys.protocols import Recorder
    from evsys.types import Rollout

__all__ = ["BackgroundWriter"]

MOST_WAITING = 4096
"""Rollouts that may wait to be written; a further one waits for the oldest."""


class BackgroundWriter:
    """Writes training rollouts in order of arrival. A failed write is raised at the next call.

    Args:
        record: writes them; it is called in the thread.
    """

    def __init__(self, record: Recorder) -> None:
        self._record = record
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()

    async def rollout(self, step: int, rollout: Rollout) -> None:
        """Put one rollout on record soon.

        Raises:
            StoreError: an earlier one couldn't be.
        """
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft().result()
        if len(self._waiting) >= MOST_WAITING:
            await asyncio.wrap_future(self._waiting.popleft())
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "evsys-rollouts")
        self._waiting.append(self._thread.submit(self._record.rollout, step, rollout, phase="training"))

    async def close(self) -> None:
        """Wait until everything is written, and end the thread.

        Raises:
            StoreError: something couldn't be written.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await in_background(thread.shutdown)
        waiting, self._waiting = self._waiting, deque()
        for written in waiting:
            written.result()
