"""How a request ends that isn't answered: at once with a status, or later as a failure of what was promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from evsys.errors import EvsysError, StoreError

__all__ = ["Category", "RefusedError", "category_of", "message_of", "reason_of"]

_FOLDERS = re.compile(r"""(?<![\w:/\\.~-])(?:/|[A-Za-z]:[/\\])(?:[^/\\\s'"]+[/\\])+""")
"""The folders of an absolute path. A `/` within words, a URL or a checkpoint's address begins none."""

MOST_CHARACTERS = 4000
"""Of a message. It repeats names from the request, which may be as long as a body."""

type Category = Literal["user", "server", "unknown"]


class RefusedError(Exception):
    """A request refused at once: the HTTP status, and why."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


def category_of(error: BaseException) -> Category:
    """Whose fault a failure is: typed errors say what the request should be like, all else is a fault of ours.

    Clients give up after their own, and may try again after the server's, such as a full disk.
    """
    if isinstance(error, StoreError):
        return "server"
    return "user" if isinstance(error, RefusedError | EvsysError | ValueError) else "server"


def reason_of(error: BaseException) -> str:
    """The full reason, for the server's own log."""
    own = isinstance(error, RefusedError | EvsysError)
    return _shortened(str(error) if own else f"{type(error).__name__}: {error}")


def message_of(error: BaseException) -> str:
    """The message for the client: the reason, with files by their names alone, since their paths are private to the
    server.
    """
    text = reason_of(error)
    if isinstance(error, RefusedError):
        return text  # our own words, with what the client asked for
    known = error.facts.get("path") if isinstance(error, EvsysError) else getattr(error, "filename", None)
    if isinstance(known, str) and Path(known).is_absolute():
        text = text.replace(known, Path(known).name)
    return _FOLDERS.sub("", text)


def _shortened(text: str) -> str:
    left_out = len(text) - MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:MOST_CHARACTERS]}... ({left_out} more characters)"
