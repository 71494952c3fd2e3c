"""The algorithms, a module each: `from evsys_sdk.algorithms.sft import SFT`. Importing this package imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_algo_distill import OPD, SDFT
    from evsys_algo_dpo import DPO
    from evsys_algo_rl import RL
    from evsys_algo_sft import SFT
    from evsys_runtime.training.algorithm import BaseAlgorithm

__all__ = ["DPO", "OPD", "RL", "SDFT", "SFT", "BaseAlgorithm"]

_HOME = {
    "BaseAlgorithm": "evsys_runtime.training.algorithm",
    "DPO": "evsys_algo_dpo",
    "OPD": "evsys_algo_distill",
    "RL": "evsys_algo_rl",
    "SDFT": "evsys_algo_distill",
    "SFT": "evsys_algo_sft",
}


if not TYPE_CHECKING:  # type checkers would read it as: every name exists, and is Any

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            msg = f"module 'evsys_sdk.algorithms' has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(_HOME[name]), name))


def __dir__() -> list[str]:
    return sorted(__all__)
