"""A failure as data: attributed once, described in one line, the traceback kept alongside it."""

from __future__ import annotations

import traceback

from evsys.errors import ConfigError, DataError, EvsysError, PluginError, RunError, StoreError
from evsys.types import Failure
from evsys_runtime.places import place_of, root_of

__all__ = ["boundary_of", "failure_of", "is_not_finite"]

_BOUNDARIES: tuple[tuple[type[EvsysError], str], ...] = (
    (DataError, "data"),
    (ConfigError, "config"),
    (PluginError, "plugin"),
    (StoreError, "store"),
)


def boundary_of(error: BaseException, default: str) -> str:
    """The boundary that an error crossed; `default` for one that no one attributed."""
    if isinstance(error, RunError):
        return error.boundary
    return next((name for cls, name in _BOUNDARIES if isinstance(error, cls)), default)


def is_not_finite(error: BaseException) -> bool:
    """True for an error caused by a number that isn't finite: it has the fact `not_finite`, or a `FloatingPointError` caused it."""
    return "not_finite" in getattr(error, "facts", {}) or isinstance(error.__cause__, FloatingPointError)


def failure_of(error: BaseException, default: str = "evaluation") -> Failure:
    """The failure that an error is; `place` is the line of the project or of a plugin that caused it."""
    placed = isinstance(error, tuple(cls for cls, _ in _BOUNDARIES))  # it names its own place
    facts = error.facts if isinstance(error, EvsysError) else {}
    return Failure(
        boundary=boundary_of(error, default),
        message=_message(error),
        error_type=type(root_of(error)).__name__,
        plugin=facts.get("plugin"),
        place=place_of(error, own_only=placed),
        hint=error.hint if isinstance(error, EvsysError) else None,
        traceback="".join(traceback.format_exception(error)),
    )


def _message(error: BaseException) -> str:
    """The message of an error, with its place if it has one; its hint is separate."""
    if not isinstance(error, EvsysError):
        return f"{type(error).__name__}: {error}"
    place = ":".join(
        str(part) for part in (getattr(error, name, None) for name in ("source", "line")) if part
    )
    return f"{place}: {error.message}" if place else error.message
