"""`dedupe`: the first of equal rows stays."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_std.transforms.columns import MISSING, Row, content_of, getter

__all__ = ["Dedupe"]


class Dedupe:
    """Leaves out rows whose key was seen before; rows without the key are kept.

    The index holds a hash of 128 bits for each distinct key: about 100 bytes of memory a row, regardless of its length.
    """

    name: ClassVar[str] = "dedupe"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `dedupe`."""

        key: str | tuple[str, ...] | None = option(
            None,
            "the column or columns that must differ; without it, the whole row",
            aliases=("column", "columns", "by"),
            min_len=1,
        )
        ignore_case: bool = option(False, "take upper and lower case as equal")
        ignore_space: bool = option(
            False, "take runs of white space as one space, and ignore it at both ends"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        key = self.config.key
        columns = (key,) if isinstance(key, str) else key
        getters = None if columns is None else [getter(column) for column in columns]
        reason = f"same {'row' if columns is None else ', '.join(columns)} as an earlier row"
        seen: set[bytes] = set()
        for row in rows:
            values = None if getters is None else [get(row) for get in getters]
            if values is not None and any(value is MISSING or value is None for value in values):
                yield row
                continue
            digest = self._digest(dict(row) if values is None else values[0] if len(values) == 1 else values)
            if digest in seen:
                self.dropped[reason] += 1
            else:
                seen.add(digest)
                yield row

    def _digest(self, value: Any) -> bytes:
        if self.config.ignore_case or self.config.ignore_space:
            value = self._normal(value)
        return hashlib.blake2b(content_of(value), digest_size=16).digest()

    def _normal(self, value: Any) -> Any:
        if isinstance(value, str):
            text = " ".join(value.split()) if self.config.ignore_space else value
            return text.casefold() if self.config.ignore_case else text
        if isinstance(value, list | tuple):
            return [self._normal(item) for item in value]
        if isinstance(value, dict):
            return {key: self._normal(item) for key, item in value.items()}
        return value
