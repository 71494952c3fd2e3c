"""Searches: what to try next, from what was tried. Each is a pure function of its parameters and the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_std.search.asha import Asha
    from evsys_std.search.grid import Grid
    from evsys_std.search.random import Random
    from evsys_std.search.sobol import Sobol

__all__ = ["Asha", "Grid", "Random", "Sobol"]

_HOME = {"Asha": "asha", "Grid": "grid", "Random": "random", "Sobol": "sobol"}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'evsys_std.search' has no attribute {name!r}")
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(f"evsys_std.search.{_HOME[name]}"), name))
