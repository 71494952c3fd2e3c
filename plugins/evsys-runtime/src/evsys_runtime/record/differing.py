"""One key in which two configs differ."""

from __future__ import annotations

import attrs

__all__ = ["Difference"]


@attrs.frozen(kw_only=True)
class Difference:
    """A key of two resolved files whose value isn't the same, as JSON texts; None where one has no such key."""

    path: str
    one: str | None
    other: str | None
