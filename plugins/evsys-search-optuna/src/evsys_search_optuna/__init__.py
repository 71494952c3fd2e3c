"""`search.kind: optuna`."""

from evsys_search_optuna.search import Optuna

__all__ = ["Optuna"]
