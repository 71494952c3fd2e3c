"""Streams of rollouts as engines give them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys.types import Rollout

__all__ = ["closing"]


@asynccontextmanager
async def closing(stream: AsyncIterator[Rollout]) -> AsyncGenerator[AsyncIterator[Rollout]]:
    """End an engine's stream with the block, so that a failure here leaves no rollout running.

    `contextlib.aclosing` wants an `aclose`, which an engine's iterator needn't have.
    """
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
