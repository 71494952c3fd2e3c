"""Answers to requests that can't be served."""

from __future__ import annotations

from typing import Any

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A request that isn't served: an HTTP status, and a message for the reader of the answer."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.retry_after = retry_after

    @property
    def document(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error": {"message": self.message, "hint": self.hint}}
