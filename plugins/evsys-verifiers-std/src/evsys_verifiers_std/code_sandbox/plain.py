"""Values as lines of JSON and back, between code that isn't trusted and code that is.

Received values are made of Python's own types again, so that none of the sender's code runs in a comparison. An
object that is not a plain value crosses as a number under which its owner knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

__all__ = ["LONGEST_LINE", "MOST_ITEMS", "READY", "as_line", "decode", "encode", "from_line"]

LONGEST_LINE = 4 << 20
"""Bytes of the longest message read."""

MOST_ITEMS = 100_000
"""How many items of an iterator cross; one that has more is cut off there."""

READY = b"ready\n"
"""The message of a process before it touches any foreign code."""

_EXACT = 1 << 53
_COLLECTIONS: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def encode(value: Any, remember: Callable[[Any], int]) -> Any:
    """A value as JSON values. `remember` gives the number of an object that is not a plain value."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if -_EXACT < value < _EXACT else {"int": hex(value)}
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, list):
        return [encode(item, remember) for item in value]
    if isinstance(value, Mapping):
        pairs = [[encode(key, remember), encode(item, remember)] for key, item in value.items()]
        return {"dict": pairs}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item, remember) for item in value]}
    return _rarer(value, remember)


def _rarer(value: Any, remember: Callable[[Any], int]) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Iterator):
        return {"iterator": [encode(item, remember) for item in islice(value, MOST_ITEMS)]}
    return {"object": remember(value)}


def decode(tree: Any, recall: Callable[[int], Any]) -> Any:
    """The value of JSON values. `recall` gives what represents the object of a number.

    Raises:
        ValueError: they are none that `encode` gives.
    """
    if isinstance(tree, list):
        return [decode(item, recall) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        raise ValueError("this is not a value")
    [(name, inside)] = tree.items()
    if name == "dict":
        return {decode(key, recall): decode(item, recall) for key, item in inside}
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](decode(item, recall) for item in inside)
    if name == "object":
        return recall(int(inside))
    return _read_rarer(name, inside, recall)


def _read_rarer(name: str, inside: Any, recall: Callable[[int], Any]) -> Any:
    if name == "int":
        return int(inside, 16)
    if name == "float":
        return float.fromhex(inside)
    if name == "bytes":
        return bytes.fromhex(inside)
    if name == "complex":
        return complex(float.fromhex(inside[0]), float.fromhex(inside[1]))
    if name == "range":
        return range(*map(int, inside))
    if name == "iterator":
        return iter([decode(item, recall) for item in inside])
    raise ValueError(f"there is no value called {name!r}")


def as_line(message: Any) -> bytes:
    """A message as one line."""
    return json.dumps(message).encode() + b"\n"


def from_line(line: bytes) -> Any:
    """The message of a line.

    Raises:
        ValueError: it isn't whole, or no JSON.
    """
    if not line.endswith(b"\n"):
        raise ValueError("the message isn't whole")
    return json.loads(line)
