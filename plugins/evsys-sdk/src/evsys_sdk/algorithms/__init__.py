"""The algorithms, a module each: `from evsys_sdk.algorithms.sft import SFT`. Importing this package imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_algo_distill import OPD, SDFT
    from evsys_algo_dpo import DPO
    from evsys_algo_rl import RL
    from evsys_algo_sft import SFT
    from evsys_runtime import BaseAlgorithm

__all__ = ["DPO", "OPD", "RL", "SDFT", "SFT", "BaseAlgorithm"]

_HOME = {
    "BaseAlgorithm": "evsys_runtime",
    "DPO": "evsys_algo_dpo",
    "OPD": "evsys_algo_distill",
    "RL": "evsys_algo_rl",
    "SDFT": "evsys_algo_distill",
    "SFT": "evsys_algo_sft",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
