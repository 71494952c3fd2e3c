"""Supervised fine-tuning."""

from __future__ import annotations

from evsys_algo_sft import SFT, RenderedRow, RenderReport, SFTParams

__all__ = ["SFT", "RenderReport", "RenderedRow", "SFTParams"]
