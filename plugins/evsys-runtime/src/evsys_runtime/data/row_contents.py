"""The normalised content of rows, so that equal rows are found regardless of ids, white space and case."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from evsys_runtime.data.json_rows import canonical
from evsys_runtime.data.row_texts import row_texts
from evsys_runtime.data.words import fold, whole

__all__ = ["content_digest", "message_digest"]

_SIZE = 16
_IDS = frozenset({"id", "uuid", "guid", "idx", "index", "__index_level_0__"})


def content_digest(value: Any) -> bytes:
    """16 bytes equal for a row's columns, or for a value, of equal content.

    Texts are folded as in the search for leaks. Columns that number or name a row don't count: `id`, `uuid`,
    `guid`, `idx`, `index`, and those that end in `_id`, unless a row has no other.

    Raises:
        DataError: there is something inside that JSON can't hold.
    """
    if isinstance(value, Mapping):
        value = {column: said for column, said in value.items() if not _names_a_row(column)} or value
    return hashlib.blake2b(canonical({"": _normalize(value)}), digest_size=_SIZE).digest()


def message_digest(row: Any) -> bytes:
    """16 bytes equal for typed rows whose messages say the same."""
    said = "\0".join(f"{part}\1{whole(fold(text))}" for part, text in row_texts(row))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


def _names_a_row(column: Any) -> bool:
    name = str(column).strip("_").lower()
    return name in _IDS or str(column) in _IDS or name.endswith("_id")


def _normalize(value: Any) -> Any:
    if isinstance(value, str):
        return whole(fold(value))
    if isinstance(value, Mapping):
        return {key: _normalize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize(item) for item in value]
    return value
