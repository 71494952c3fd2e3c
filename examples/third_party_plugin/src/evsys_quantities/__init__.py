"""Quantities for evsys: a verifier, a metric and an algorithm for answers such as `3.2 km`."""

from evsys_quantities.algorithm import DigitSFT
from evsys_quantities.metric import RewardSpread
from evsys_quantities.units import Quantity
from evsys_quantities.verifier import QuantityVerifier

__all__ = ["DigitSFT", "Quantity", "QuantityVerifier", "RewardSpread"]
