"""The `null` environment: for agents that act through the model alone."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["NullEnvironment"]


class NullEnvironment:
    """Nowhere: nothing is started, nothing can be executed."""

    name: ClassVar[str] = "null"

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing, as often as asked."""
