"""Arms, values of axes and scores, as all samplers take them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from evsys.types import SearchAxis

__all__ = ["is_number", "key_of", "rounded"]

DIGITS = 4
"""Significant digits of a float between the ends of its range: names and reports show the very value."""


def is_number(score: float | None) -> bool:
    """Whether a score is one that can be ranked."""
    return score is not None and math.isfinite(score)


def key_of(arm: Mapping[str, Any]) -> str:
    """One text for equal arms: true isn't 1."""
    return json.dumps(arm, sort_keys=True)


def rounded(axis: SearchAxis, value: float) -> float:
    """A float of a range as it is proposed."""
    return min(max(float(f"{value:.{DIGITS}g}"), float(axis.low)), float(axis.high))
