"""The position of a training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys.types import Checkpoint

__all__ = ["LoopProgress"]


@attrs.define(kw_only=True)
class LoopProgress:
    """How far the run has come; what a checkpoint keeps of it."""

    step: int = 0
    saved: int | None = None
    metrics: dict[str, float] = attrs.field(factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    state: Mapping[str, Any] = attrs.field(factory=dict)
    checkpoint: Checkpoint | None = None
