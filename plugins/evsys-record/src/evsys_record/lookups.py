"""The cache hits and misses of evaluations, as runs record them and `evsys cache why --json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Lookup", "Lookups"]


@attrs.frozen(kw_only=True)
class Lookup:
    """The cache result of an evaluation.

    `used` of the `wanted` rollouts were taken from it. `reason` says why none could be. If its ingredients were
    unknown, `nearest` is the evaluation with the fewest different ones, as `{scoring, run, created, differences}`;
    else `missing` names rollouts that weren't kept, as `{task_id, sample_index, why}`.
    """

    run: str
    benchmark: str
    step: int
    model: str | None = None
    wanted: int | None = None
    found: int = 0
    used: int = 0
    reason: str | None = None
    scoring: str | None = None
    ingredients: Mapping[str, Any] | None = None
    nearest: Mapping[str, Any] | None = None
    missing: tuple[Mapping[str, Any], ...] = ()


@attrs.frozen(kw_only=True)
class Lookups:
    """The lookups of the requested runs."""

    lookups: tuple[Lookup, ...] = ()
