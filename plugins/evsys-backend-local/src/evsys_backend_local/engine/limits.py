"""The limits of this engine, and their errors."""

from __future__ import annotations

from evsys.errors import BackendError

__all__ = [
    "MAX_CONTEXT",
    "MAX_PARAMETERS",
    "MAX_TREE_ROWS",
    "PREFIX_CACHE_MB",
    "ContextTooLongError",
    "InvalidInputError",
]

MAX_PARAMETERS = 2_000_000_000
"""Above this many parameters a CPU is the wrong machine; loading is refused."""

MAX_CONTEXT = 8192
"""Longest sequence, regardless of the model could do: training keeps a row of activations for each token."""

MAX_TREE_ROWS = 8192
"""Most rows computed together: sequences with a common beginning, or one long sequence."""

PREFIX_CACHE_MB = 256
"""Memory for the keys and values of prompts kept between calls, in MiB, where nothing else is asked for."""


class InvalidInputError(BackendError, ValueError):
    """The request can't be computed, regardless of the model: a token that it doesn't have, a temperature below 0."""


class ContextTooLongError(InvalidInputError):
    """A sequence is longer than what the model is computed for. ``tokens`` and ``limit`` are in its `facts`."""

    def __init__(self, message: str, *, tokens: int, limit: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, tokens=tokens, limit=limit)
