"""Flattened attributes, `a.0.b` and the like, as the tree that they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["unflatten"]

_MOST = 100_000
"""Attributes of one span; a record with more is not one that an exporter wrote."""


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The tree: names between dots are keys, and objects whose keys are all numbers are lists in their order."""
    root: dict[str, Any] = {}
    for name, value in list(flat.items())[:_MOST]:
        *path, last = str(name).split(".")
        place: Any = root
        for key in path:
            inner = place.get(key)
            if not isinstance(inner, dict):
                inner = place[key] = {}
            place = inner
        if not (isinstance(place.get(last), dict) and not isinstance(value, Mapping)):
            place[last] = value
    return {key: _with_lists(value) for key, value in root.items()}


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(each) for key, each in value.items()}
    if inner and all(key.isdecimal() and len(key) <= 9 for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner
