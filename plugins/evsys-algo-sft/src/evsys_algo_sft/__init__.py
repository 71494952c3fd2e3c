"""Supervised fine-tuning."""

from __future__ import annotations

from evsys_algo_sft.algorithm import SFT, SFTParams
from evsys_algo_sft.sequences import RenderedRow, RenderReport

__all__ = ["SFT", "RenderReport", "RenderedRow", "SFTParams"]
