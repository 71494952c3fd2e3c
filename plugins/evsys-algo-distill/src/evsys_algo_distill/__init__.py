"""Distillation: a model learns on its own answers from what a teacher thinks of them."""

from __future__ import annotations

from evsys_algo_distill.opd import OPD
from evsys_algo_distill.params import OPDParams
from evsys_algo_distill.sdft import SDFT, SDFTParams

__all__ = ["OPD", "SDFT", "OPDParams", "SDFTParams"]
