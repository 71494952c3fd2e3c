"""msgspec where it is installed and there are many rows: the same rows and the same bytes in a third of the time.

It is used only if its answer can't differ from the standard library's. Input that it refuses, and values that it
would write in another way, go to the standard library, which also words the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["Accelerator", "accelerator", "written_alike"]

WORTH_AFTER = 2_000
"""Rows after which msgspec is imported, which costs what it saves on some thousands. Few benchmarks have as many."""

_ALIKE = frozenset({str, bool, type(None)})


def written_alike(value: Any) -> bool:
    """True when both libraries write the value in the same way.

    They differ on exponents of floats, on integers beyond 64 bits, on NaN, on keys that aren't text and on types of
    their own; so plain types in safe ranges are let through and nothing else.
    """
    kind = type(value)
    if kind in _ALIKE:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) is not str and not written_alike(item)):
                return False
        return True
    if kind is list:
        return all(type(item) is str or written_alike(item) for item in value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    return kind is float and bool(1e-3 <= abs(value) < 1e15 or value == 0)


class Accelerator:
    """`decode` and `encode` of msgspec, None until so many rows went by that they are worth having."""

    def __init__(self) -> None:
        self.decode: Callable[[bytes], Any] | None = None
        self.encode: Callable[[Any], bytes] | None = None
        self._rows = 0
        self._asked_for = False

    def row_went_by(self) -> None:
        """Count a row that the standard library read or wrote."""
        self._rows += 1
        if self._rows >= WORTH_AFTER and not self._asked_for:
            self.bring_in()

    def bring_in(self) -> None:
        """Import msgspec; where it isn't installed everything stays as it is."""
        self._asked_for = True
        try:
            msgspec: Any = import_module("msgspec")
        except ImportError:
            return
        self.decode, self.encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


accelerator = Accelerator()
