"""What a stream that people look at takes."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["takes_colours"]


def takes_colours(stream: TextIO) -> bool:
    """True for a terminal that knows colours, unless its user wants none: NO_COLOR is set to anything but nothing."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return not stream.closed and stream.isatty()
