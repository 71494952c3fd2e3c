"""Seeds: `seed = H(base_seed, repeat, purpose, index)`, of later stages with their number in `purpose`. Arms share them, so arms are paired; call order and names don't enter."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from evsys_runtime.config.plan import ArmConfig, Plan

__all__ = ["Seeds", "derive", "seeds_of"]

_SHARED = ("data", "evaluation")
"""Purposes that all stages of an arm share: rows are drawn again as they were when they are replayed, and what is scored
after each stage is drawn alike.
"""


def derive(base_seed: int, repeat: int, purpose: str, index: int = 0) -> int:
    """The seed of one purpose, in [0, 2**63)."""
    text = f"evsys-seed/1:{base_seed}:{repeat}:{purpose}:{index}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


@attrs.frozen(kw_only=True)
class Seeds:
    """The seeds of one arm at one repeat: `seeds("data_order", epoch)`. Those of a later `stage` (from 1) are others."""

    base_seed: int = 0
    repeat: int = 0
    stage: int = 1

    def __call__(self, purpose: str, index: int = 0) -> int:
        if self.stage > 1 and purpose.partition("/")[0] not in _SHARED:
            purpose = f"{purpose}@{self.stage}"
        return derive(self.base_seed, self.repeat, purpose, index)


def seeds_of(plan: Plan, arm: ArmConfig) -> Seeds:
    """The seeds of one arm of a plan at its repeat: `run.seed` takes the place of `base_seed`."""
    base = plan.experiment.base_seed if arm.seed_override is None else arm.seed_override
    return Seeds(base_seed=base, repeat=arm.repeat, stage=1 if arm.stage is None else arm.stage.index)
