"""Keys that a JSON object gives twice: readers keep the last value and say nothing, so a row would lose data in silence.

Decoding with a hook finds them and costs as much as the decoding. So keys are counted first: where the text has as many
places that a key could end at as the decoded value has keys, none is lost. Only where the counts differ, or could agree by
chance, is the text decoded again.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any

from evsys_runtime.data.json_rows import BadRow

__all__ = ["refuse_duplicate_keys"]

_SPACE = (b"\t", b"\r", b"\n")


def refuse_duplicate_keys(raw: bytes, row: Mapping[str, Any]) -> None:
    """Refuse a row in which an object, at any depth, has one key twice.

    Args:
        raw: the valid JSON that the row was decoded from.
        row: the decoded row.

    Raises:
        BadRow: names the key.
    """
    colons = raw.count(b":")  # each key has one, and texts may have more
    if colons == len(row):
        return
    keys = _keys(row)
    if colons == keys or (raw.count(b'":') == keys and not _allows_space(raw)):
        return
    _decode(raw.removeprefix(codecs.BOM_UTF8).decode("utf-8"))


def _allows_space(raw: bytes) -> bool:
    """True where white space may be between a key and its colon."""
    return b" :" in raw or any(space in raw for space in _SPACE)


def _keys(value: Mapping[str, Any]) -> int:
    """Keys of an object and of everything in it."""
    count = len(value)
    for item in value.values():
        kind = type(item)
        if kind is dict:
            count += _keys(item)
        elif kind is list:
            count += _keys_in(item)
    return count


def _keys_in(values: Sequence[Any]) -> int:
    count = 0
    for item in values:
        kind = type(item)
        if kind is dict:
            count += _keys(item)
        elif kind is list:
            count += _keys_in(item)
    return count


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise BadRow(
            "a key given twice", f"the key {twice!r} is given twice, and one of its values would be lost"
        )
    return found


_decode = json.JSONDecoder(object_pairs_hook=_distinct).decode
