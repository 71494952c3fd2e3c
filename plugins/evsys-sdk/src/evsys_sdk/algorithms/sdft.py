"""Self-distillation: the teacher is the model itself, with a demonstration in its prompt."""

from __future__ import annotations

from evsys_algo_distill import SDFT, SDFTParams

__all__ = ["SDFT", "SDFTParams"]
