"""An arm as plain values, with the place of each in the file and the hash of what makes it this run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import attrs

from evsys_record import BASE_MODEL
from evsys_runtime.config import trees

__all__ = ["BASE_MODEL", "ArmTree", "Digests", "Origins", "Stage"]

_UNNAMED = frozenset({"name", "tags"})
"""Keys of a run that don't make it another run."""


@attrs.frozen(kw_only=True, eq=False)
class Origins:
    """The places of an arm's values in the file: `base` and, for each axis, a path inside the run and its place."""

    base: str
    axes: tuple[tuple[str, str], ...] = ()

    def locate(self, path: str) -> str:
        """The path in the file of a path in the arm (`$` is the run)."""
        best, place = "$", self.base
        for prefix, where in self.axes:
            inside = path == prefix or (path.startswith(prefix) and path[len(prefix)] in ".[")
            if inside and len(prefix) > len(best):
                best, place = prefix, where
        return place + path[len(best) :]


@attrs.frozen(kw_only=True)
class Stage:
    """Which of the runs of an arm this is that begin, each, with the weights that the one before ended with.

    `index` counts from 1 to `of`; `before` is the hash of what the stages before this one are, None for the first.
    """

    index: int
    name: str
    of: int
    before: str | None = None

    @property
    def label(self) -> str:
        """`<index>-<name>`."""
        return f"{self.index}-{self.name}"

    @property
    def first(self) -> bool:
        """True for the one that begins where the arm does."""
        return self.index == 1

    @property
    def last(self) -> bool:
        """True for the one whose weights are the arm's."""
        return self.index == self.of


@attrs.frozen(kw_only=True, eq=False)
class ArmTree:
    """One arm as plain values, or one `stage` of it. `digest` is the hash of what makes it this run: all but its name and tags."""

    name: str
    tree: Mapping[str, Any]
    origins: Origins
    digest: str
    stage: Stage | None = None


class Digests:
    """Hashes of runs, from a hash input made once for each distinct part."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[str, Any]] = {}
        self.orders: dict[tuple[str, ...], list[str]] = {}

    def of(self, tree: Mapping[str, Any]) -> str:
        """The hash of a run without its name and tags."""
        keys = tuple(tree)
        order = self.orders.get(keys)
        if order is None:
            order = self.orders[keys] = sorted(set(keys) - _UNNAMED)
        parts = [f"{key}:{self._part(tree[key])}" for key in order]
        return f"sha256:{hashlib.sha256('\n'.join(parts).encode('utf-8')).hexdigest()}"

    def _part(self, value: Any) -> str:
        known = self.known.get(id(value))
        if known is None:
            # The value is kept alongside its text, so that its identity can't be given to another.
            known = self.known[id(value)] = (trees.canonical(value), value)
        return known[0]
