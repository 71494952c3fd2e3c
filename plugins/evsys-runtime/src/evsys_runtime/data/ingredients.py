"""Why something wasn't found in a cache: what decided one entry, alongside what decides the wanted one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from evsys_record.encoding import encode
from evsys_runtime.data.cache import CachedData

__all__ = ["Difference", "differences", "nearest"]


@attrs.frozen(kw_only=True)
class Difference:
    """One ingredient that differs. `path` is dotted; None represents an ingredient that isn't there."""

    path: str
    wanted: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.path}: {_text(self.found)} there, {_text(self.wanted)} wanted"


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[Difference]:
    """The differences between two sets of ingredients, mappings compared key by key."""
    return list(_walk(wanted, found, ""))


def nearest(
    wanted: Mapping[str, Any], entries: Iterable[CachedData]
) -> tuple[CachedData, list[Difference]] | None:
    """The entry with the fewest differences; the newest among equals. None when no entry has ingredients."""
    judged = [(entry, differences(wanted, entry.ingredients)) for entry in entries if entry.ingredients]
    judged.sort(key=lambda pair: pair[0].created, reverse=True)
    return min(judged, key=lambda pair: len(pair[1]), default=None)


def _walk(wanted: Any, found: Any, path: str) -> Iterator[Difference]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*wanted, *found}):
            yield from _walk(wanted.get(key), found.get(key), f"{path}.{key}" if path else key)
    elif encode(wanted) != encode(found):
        yield Difference(path=path, wanted=wanted, found=found)


def _text(value: Any) -> str:
    return "nothing" if value is None else encode(value)
