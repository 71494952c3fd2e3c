"""Learning from preference pairs."""

from __future__ import annotations

from evsys_algo_dpo import DPO, DPOParams, RenderedPair, preference_loss

__all__ = ["DPO", "DPOParams", "RenderedPair", "preference_loss"]
