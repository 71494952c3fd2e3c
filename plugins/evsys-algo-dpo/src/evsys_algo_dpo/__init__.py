"""Learning from preference pairs."""

from __future__ import annotations

from evsys_algo_dpo.algorithm import DPO, DPOParams
from evsys_algo_dpo.losses import preference_loss
from evsys_algo_dpo.pairs import RenderedPair

__all__ = ["DPO", "DPOParams", "RenderedPair", "preference_loss"]
