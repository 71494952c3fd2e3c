"""The line that an error comes from: the last one of the project's or a plugin's own code."""

from __future__ import annotations

import sys
import traceback
from types import FrameType

__all__ = ["is_known", "place_of", "root_of"]


def root_of(error: BaseException) -> BaseException:
    """The exception at the bottom of the chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def place_of(error: BaseException, *, own_only: bool = False) -> str | None:
    """`file:line` of the innermost frame in the project, else, unless `own_only`, in an installed plugin; None if there is none."""
    lines = [
        (frame, line)
        for frame, line in traceback.walk_tb(root_of(error).__traceback__)
        if not is_known(frame)
    ]
    own = [(frame, line) for frame, line in lines if "site-packages" not in frame.f_code.co_filename]
    frames = own or ([] if own_only else lines)
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else None


def is_known(frame: FrameType) -> bool:
    """Whether a frame is in code that users do not edit: evsys, the standard library, or code without a file."""
    if frame.f_code.co_filename.startswith("<"):
        return True
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in sys.stdlib_module_names or package == "evsys" or package.startswith("evsys_")
