"""Losses: the built-in ones, and those that a user writes in numpy, torch or jax, with gradients by the logprobs."""

from __future__ import annotations

from evsys_runtime.losses.builtin import BUILTIN_LOSSES
from evsys_runtime.losses.compute import compute_loss, hides_builtin, resolve_loss
from evsys_runtime.losses.frameworks import loss
from evsys_runtime.losses.policy import KL_ESTIMATORS, PolicyObjective, kl_terms
from evsys_runtime.losses.tape import TapeError, stop_gradient

__all__ = [
    "BUILTIN_LOSSES",
    "KL_ESTIMATORS",
    "PolicyObjective",
    "TapeError",
    "compute_loss",
    "hides_builtin",
    "kl_terms",
    "loss",
    "resolve_loss",
    "stop_gradient",
]
