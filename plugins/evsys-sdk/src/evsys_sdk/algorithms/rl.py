"""Reinforcement learning from verified rewards."""

from __future__ import annotations

from evsys_algo_rl import RL, RLParams

__all__ = ["RL", "RLParams"]
