"""Which training rollouts continue file. `local_logger` sets it in the experiment file."""

from __future__ import annotations

import hashlib

import attrs

from evsys import option
from evsys.types import Rollout

__all__ = ["KeepRollouts"]


@attrs.frozen(kw_only=True)
class KeepRollouts:
    """Which training rollouts stay in the record; those of evaluations always do.

    A step's tasks are chosen with all their samples and by hash, so the same ones in each rerun.
    """

    every: int = option(1, "keep those of steps that this number divides; 0 keeps none", ge=0)
    share: float = option(1.0, "keep this share of a step's tasks, with all their samples", ge=0, le=1)
    errors: bool = option(True, "keep failed ones regardless of the other settings")

    def keeps(self, step: int, rollout: Rollout) -> bool:
        """True when this training rollout continues file."""
        if self.errors and rollout.error is not None:
            return True
        if self.every < 1 or step % self.every:
            return False
        return self.share >= 1.0 or _fraction(f"{step}/{rollout.task_id}") < self.share


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]) / 2**64
