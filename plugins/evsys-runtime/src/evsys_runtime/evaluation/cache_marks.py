"""How a rollout says that it comes from the result cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys.types import Rollout

__all__ = ["is_cached", "mark_cached", "tells_cached"]

_MARK = "result_cache"
"""A key of the rollout's metadata."""


def is_cached(rollout: Rollout) -> bool:
    """True for a rollout that comes from the cache: what it used was paid for before."""
    return tells_cached(rollout.metadata)


def tells_cached(metadata: Mapping[str, Any]) -> bool:
    """`is_cached`, of the metadata alone, as they are on record."""
    return _MARK in metadata


def mark_cached(rollout: Rollout, scoring: str, **changes: Any) -> Rollout:
    """The rollout as one of the cache; `scoring` is the id under which it was kept, `changes` are fields of now."""
    return attrs.evolve(rollout, metadata={**rollout.metadata, _MARK: {"scoring": scoring}}, **changes)
