"""Pausing the garbage collector while thousands of objects are made that all stay in use."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collection_paused"]


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the garbage collector from walking, again and again, over thousands of new arms that are all in use."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # else the objects that the application froze would be thawed
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, past the walks over young objects
            gc.enable()
