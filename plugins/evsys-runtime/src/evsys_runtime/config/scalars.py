"""The value of a plain YAML scalar: the core schema of YAML 1.2, and nothing else.

`1e-4` is a number here and `on`, `12:30:00` and `2026-01-01` are text, unlike in YAML 1.1.
"""

from __future__ import annotations

import math
import re

__all__ = ["CORE_TAGS", "describe", "is_broken", "is_non_finite", "join_surrogates", "resolve", "resolve_as"]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INFINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)\Z")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_LONGEST_NUMBER = 400

CORE_TAGS = {
    f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null", "seq", "map")
}

type Scalar = str | int | float | bool | None


def resolve(text: str) -> Scalar:
    """The value of a plain scalar. `.nan` and `.inf` come back as such; a request for a number refuses them.

    Raises:
        ValueError: a number too long to be meant.
    """
    if text in _NULL:
        return None
    first = text[0]
    if first.isalpha() or first == "<":
        return True if text in _TRUE else False if text in _FALSE else text
    if first not in "+-.0123456789":
        return text
    if len(text) > _LONGEST_NUMBER and _FLOAT.match(text):
        raise ValueError(f"a number of {len(text)} digits is too long")
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    if _HEXADECIMAL.match(text):
        return int(text, 16)
    if _OCTAL.match(text):
        return int(text, 8)
    if text in _NAN:
        return math.nan
    if _INFINITE.match(text):
        return -math.inf if first == "-" else math.inf
    return text


def resolve_as(name: str, text: str) -> Scalar:
    """The value of a scalar that carries a core tag, such as `!!str 10`.

    Raises:
        ValueError: the text has no such value.
    """
    if name == "str":
        return text
    value = resolve(text)
    if name == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(name)
    if expected is None or type(value) is not expected:
        raise ValueError(f"{text!r} is not a !!{name}")
    return value


def is_non_finite(value: object) -> bool:
    """True for NaN and the infinities."""
    return isinstance(value, float) and not math.isfinite(value)


def is_broken(value: object) -> bool:
    """True for text that no file could hold: it has halves of surrogate pairs."""
    return (
        isinstance(value, str) and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)
    )


def join_surrogates(text: str) -> str:
    """Text with the surrogate pairs joined that JSON's escapes write; unchanged where one half is missing."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if is_broken(text) else text
    except UnicodeDecodeError:
        return text


def describe(value: object) -> str:
    """The type of a value, in the words of messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "a mapping"
