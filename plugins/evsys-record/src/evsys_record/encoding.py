"""Values to JSON text: what the record may hold, and how it looks in a file."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import PurePath
from typing import Any

__all__ = ["as_tree", "encode", "encode_pretty", "encode_record", "field_values", "now", "utf8"]

_COMPACT = (",", ":")
_INDENT_BELOW = 1_000_000


def field_values(obj: Any) -> dict[str, Any] | None:
    """The fields of an attrs class or dataclass in their order, values as they are; None for anything else."""
    attributes = getattr(type(obj), "__attrs_attrs__", None)
    if attributes is not None:
        return {attribute.name: getattr(obj, attribute.name) for attribute in attributes}
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    return None


def _jsonable(obj: Any) -> Any:
    """One step towards JSON for what the encoder doesn't know. Arrays and pydantic models are found by shape, so that
    neither numpy nor pydantic is imported.
    """
    fields = field_values(obj)
    if fields is not None:
        return fields
    if isinstance(obj, Mapping):
        return dict(obj)
    if isinstance(obj, enum.Enum):
        return obj.value
    if isinstance(obj, PurePath):
        return str(obj)
    if isinstance(obj, date):
        return obj.isoformat()
    if isinstance(obj, set | frozenset):
        return sorted(obj)
    for method, arguments in (("tolist", {}), ("model_dump", {"mode": "json"})):
        convert = getattr(obj, method, None)
        if convert is not None:
            return convert(**arguments)
    if isinstance(obj, Sequence) and not isinstance(obj, bytes | bytearray | memoryview):
        return list(obj)
    msg = f"{type(obj).__name__} has no JSON form"
    raise TypeError(msg)


def _describe(obj: Any) -> Any:
    """Like `_jsonable`, with `repr` as the last resort: a record is written even if a plugin put an odd object in it."""
    try:
        return _jsonable(obj)
    except TypeError:
        return repr(obj)


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=_COMPACT, default=_describe)
_SORTED = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=_COMPACT, sort_keys=True, default=_jsonable
)
_SORTED_WITH_NAN = json.JSONEncoder(
    ensure_ascii=False, separators=_COMPACT, sort_keys=True, default=_jsonable
)
_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=_COMPACT, default=_jsonable)
_LINE_WITH_NAN = json.JSONEncoder(ensure_ascii=False, separators=_COMPACT, default=_describe)


def _null(_constant: str) -> None:
    return None


def encode(obj: Any) -> str:
    """Canonical text: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: a number isn't finite, or the object contains itself.
        TypeError: a value has no JSON form.
    """
    return _SORTED.encode(obj)


def as_tree(obj: Any) -> Any:
    """Plain JSON values of an object, fields in their order; numbers that aren't finite become null.

    Raises:
        TypeError: a value has no JSON form.
    """
    return json.loads(_PLAIN.encode(obj), parse_constant=_null)


def encode_record(obj: Any) -> str:
    """One line of text, keys in their order; numbers that aren't finite become null, odd objects their `repr`."""
    try:
        return _LINE.encode(obj)
    except ValueError:
        tree = json.loads(_LINE_WITH_NAN.encode(obj), parse_constant=_null)
        return _LINE.encode(tree)


def encode_pretty(obj: Any, first: Mapping[str, Any]) -> str:
    """Text of a whole file: the keys of `first`, then those of `obj` sorted at every level; NaN becomes null.

    Indented for people up to a megabyte, compact beyond.

    Raises:
        TypeError: a value has no JSON form, or `obj` isn't a mapping.
    """
    text = _SORTED_WITH_NAN.encode(obj)
    tree = json.loads(text, parse_constant=_null)
    if not isinstance(tree, dict):
        msg = f"a record file holds a mapping, not {type(obj).__name__}"
        raise TypeError(msg)
    indent = 2 if len(text) < _INDENT_BELOW else None
    separators = None if indent else _COMPACT
    return json.dumps({**first, **tree}, ensure_ascii=False, indent=indent, separators=separators) + "\n"


_SURROGATE = re.compile("[\ud800-\udfff]")


def utf8(text: str) -> bytes:
    r"""Bytes of any text: the one rule for what is written to a file or hashed.

    A lone surrogate, which UTF-8 can't hold, becomes its escape `\udc80`: in JSON it reads back as it was, and anywhere
    else a person sees which one it is.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")


_second: tuple[int, str] = (0, "")


def now() -> str:
    """This moment, UTC, ISO 8601 with milliseconds. The text of a second is kept, since formatting it costs most."""
    global _second  # noqa: PLW0603 - a memo that threads may swap freely
    moment = time.time()
    second = int(moment)
    known, text = _second
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{int((moment - second) * 1000):03d}Z"
