"""Ending a computation that is not awaited any more: a flag looked at between small pieces of work."""

from __future__ import annotations

import threading

__all__ = ["Abort", "AbortedError", "abort_all"]

_EXITING = threading.Event()


class AbortedError(Exception):
    """A computation ended early because it was asked to. Internal: only the code that set the flag sees it."""


class Abort:
    """Asks computations to end; from any thread, at any time, for good.

    Args:
        parent: its flag counts too, so that one call ends everything started under it.
    """

    def __init__(self, parent: Abort | None = None) -> None:
        self._event = threading.Event()
        self._parent = parent

    def set(self) -> None:
        """End what looks at this flag, or at one made under it."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether to end now; true for all once the process exits."""
        above = self._parent is not None and self._parent.is_set()
        return self._event.is_set() or _EXITING.is_set() or above

    def check(self) -> None:
        """Raise `AbortedError` if the flag is set."""
        if self.is_set():
            raise AbortedError


def abort_all() -> None:
    """End every computation of the process, when it exits."""
    _EXITING.set()
