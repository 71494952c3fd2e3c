"""Sentences about values that don't fit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from evsys._plugins.refusals import closest
from evsys._plugins.shape import Shape, shape_of

__all__ = ["mismatch"]

_WORDS = {"boolean": "true or false", "number": "a finite number", "null": "null", "string": "text"}
_WORDS |= {"integer": "an integer", "object": "a mapping", "sequence": "a list", "tuple": "a list"}
_BOOLEANS = {**dict.fromkeys(("true", "yes", "on"), "true"), **dict.fromkeys(("false", "no", "off"), "false")}


def mismatch(shape: Shape, value: Any) -> tuple[str, str | None]:
    """A message that says what `shape` takes and what `value` is, and a hint where the cure is plain."""
    return f"expected {_words(shape)}, got {_short(value)}", _hint(shape, value)


def _words(shape: Shape) -> str:
    parts = shape.parts if shape.kind in {"choice", "union"} else ()
    words = [_short(part) if shape.kind == "choice" else _words(shape_of(part)) for part in parts]
    return " or ".join(dict.fromkeys(words)) or _WORDS.get(shape.kind, f"a {shape.kind}")


def _short(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int | float):
        return repr(value) if len(repr(value)) < 60 else f"{repr(value)[:56]}..."
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def _hint(shape: Shape, value: Any) -> str | None:
    kinds = {shape_of(part).kind for part in shape.parts} if shape.kind == "union" else {shape.kind}
    if isinstance(value, str) and kinds & {"integer", "number"}:
        with suppress(ValueError, OverflowError):
            number = float(value) if "number" in kinds else int(value)
            return f"write {number!r} without quotes" if isfinite(number) else None
    if isinstance(value, str) and "boolean" in kinds:
        return f"write {_BOOLEANS[value.lower()]}" if value.lower() in _BOOLEANS else None
    if shape.kind == "choice":
        return closest(value, map(str, shape.parts))
    if isinstance(value, bool | int | float) and "string" in kinds:
        return f"write it in quotes: '{_short(value)}'"
    if isinstance(value, str | bool | int | float) and kinds & {"sequence", "tuple"}:
        return f"write [{value}]"
    return None
