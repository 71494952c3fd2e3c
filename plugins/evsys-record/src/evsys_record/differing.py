"""The keys in which two configs differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

__all__ = ["Difference", "differences"]


@attrs.frozen(kw_only=True)
class Difference:
    """A key of two resolved files whose value isn't the same, as JSON texts; None where one has no such key."""

    path: str
    one: str | None
    other: str | None


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], *, text: Callable[[Any], str] = _as_json
) -> tuple[Difference, ...]:
    """The paths at which two configs differ, in order.

    Args:
        one: values by their paths.
        other: those of the other one.
        text: makes the JSON text of a value; `str` where the values are such texts.
    """

    def told(leaves: Mapping[str, Any], path: str) -> str | None:
        return text(leaves[path]) if path in leaves else None

    return tuple(
        Difference(path=path, one=told(one, path), other=told(other, path))
        for path in sorted({*one, *other})
        if one.get(path) != other.get(path)
    )
