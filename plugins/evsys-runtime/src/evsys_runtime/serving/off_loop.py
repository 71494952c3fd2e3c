"""Work that a client can make long, kept off the event loop so that others are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

__all__ = ["off_loop"]

SMALL = 32 << 10
"""Below this size a thread costs more than the work itself."""


async def off_loop[T](size: Sized | int, work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread unless it is small.

    Args:
        size: how much there is to do: bytes, tokens, or what has as many.
        work: touches nothing that others may change meanwhile.
    """
    amount = size if isinstance(size, int) else len(size)
    return work() if amount < SMALL else await asyncio.to_thread(work)
