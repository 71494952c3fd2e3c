"""On-policy distillation from a second model."""

from __future__ import annotations

from evsys_algo_distill import OPD, OPDParams

__all__ = ["OPD", "OPDParams"]
