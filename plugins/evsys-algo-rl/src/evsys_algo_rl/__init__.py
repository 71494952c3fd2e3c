"""Reinforcement learning from verified rewards."""

from __future__ import annotations

from evsys_algo_rl.algorithm import RL
from evsys_algo_rl.params import RLParams

__all__ = ["RL", "RLParams"]
