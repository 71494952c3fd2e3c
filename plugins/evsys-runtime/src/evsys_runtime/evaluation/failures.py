"""A failure as data: attributed once, told in one line, the traceback kept beside it."""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from evsys.errors import ConfigError, DataError, EvsysError, PluginError, RunError, StoreError
from evsys.types import Failure

__all__ = ["boundary_of", "failure_of", "is_known"]

_BOUNDARIES: tuple[tuple[type[EvsysError], str], ...] = (
    (DataError, "data"),
    (ConfigError, "config"),
    (PluginError, "plugin"),
    (StoreError, "store"),
)


def boundary_of(error: BaseException, default: str) -> str:
    """The boundary that an error crossed; `default` for one that nobody attributed."""
    if isinstance(error, RunError):
        return error.boundary
    return next((name for cls, name in _BOUNDARIES if isinstance(error, cls)), default)


def failure_of(error: BaseException, default: str = "evaluation") -> Failure:
    """The failure that an error is; `place` is the line of the project or of a plugin that caused it."""
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    facts = error.facts if isinstance(error, EvsysError) else {}
    return Failure(
        boundary=boundary_of(error, default),
        message=_message(error),
        error_type=type(root).__name__,
        plugin=facts.get("plugin"),
        place=_place(error, root),
        hint=error.hint if isinstance(error, EvsysError) else None,
        traceback="".join(traceback.format_exception(error)),
    )


def _place(error: BaseException, root: BaseException) -> str | None:
    """The innermost line of the project; else of what is installed, unless the error names its own place."""
    lines = [(frame, line) for frame, line in traceback.walk_tb(root.__traceback__) if not is_known(frame)]
    own = [(frame, line) for frame, line in lines if "site-packages" not in frame.f_code.co_filename]
    placed = isinstance(error, tuple(cls for cls, _ in _BOUNDARIES))
    frames = own or ([] if placed else lines)
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else None


def is_known(frame: FrameType) -> bool:
    """True where nobody looks for what to change: in evsys, in the standard library, in code without a file."""
    if frame.f_code.co_filename.startswith("<"):
        return True
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in sys.stdlib_module_names or package == "evsys" or package.startswith("evsys_")


def _message(error: BaseException) -> str:
    """What an error says, with its place where it has one; its hint stands beside."""
    if not isinstance(error, EvsysError):
        return f"{type(error).__name__}: {error}"
    place = ":".join(
        str(part) for part in (getattr(error, name, None) for name in ("source", "line")) if part
    )
    return f"{place}: {error.message}" if place else error.message
