"""The progress of a transfer, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["progress", "size_text"]

_EVERY = 0.2


@contextmanager
def progress(label: str, stream: IO[Any]) -> Iterator[Callable[[int, int], None]]:
    """Shows how much of something is done in a line of a terminal; nothing elsewhere."""
    shown = -_EVERY
    width = 0

    def tell(done: int, whole: int) -> None:
        nonlocal shown, width
        moment = time.monotonic()
        if not stream.isatty() or (done < whole and moment - shown < _EVERY):
            return
        text = f"{label}: {size_text(done)} of {size_text(whole)}"
        stream.write(f"\r{text.ljust(width)}")
        stream.flush()
        shown, width = moment, len(text)

    try:
        yield tell
    finally:
        if width:
            stream.write("\n")


def size_text(size: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
