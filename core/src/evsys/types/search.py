"""The space that a search chooses from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

__all__ = ["SearchAxis"]


@attrs.frozen(kw_only=True)
class SearchAxis:
    """One axis of a space: some `choices`, or all numbers from `low` to `high`, both included; on `log` scales
    evenly by ratio.

    `when` has the accepted values of other axes, which come earlier in a space; None among them represents an
    omitted axis. If it doesn't apply, an arm has no value of it.
    """

    path: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    type: Literal["float", "int"] = "float"
    when: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)

    def applies(self, arm: Mapping[str, Any]) -> bool:
        """Whether it has a value in an arm whose earlier axes have these values."""
        return all(
            any(isinstance(one, bool) is isinstance(value, bool) and one == value for one in accepted)
            for value, accepted in ((arm.get(path), accepted) for path, accepted in self.when.items())
        )
