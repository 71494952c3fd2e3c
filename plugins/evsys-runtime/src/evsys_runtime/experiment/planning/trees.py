"""Where two resolved configs differ, key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evsys_runtime.record.differing import Difference

__all__ = ["differences"]

type Leaves = Mapping[str, Any]


def differences(one: Leaves, other: Leaves) -> tuple[Difference, ...]:
    """The paths at which two configs differ, in order."""
    paths = sorted({*one, *other})
    return tuple(
        Difference(path=path, one=_text(one, path), other=_text(other, path))
        for path in paths
        if one.get(path) != other.get(path)
    )


def _text(leaves: Leaves, path: str) -> str | None:
    return json.dumps(leaves[path], ensure_ascii=False) if path in leaves else None
