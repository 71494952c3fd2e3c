"""Searches: what to try next, from what was tried. Each is a pure function of its parameters and the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_std.search.asha import Asha
    from evsys_std.search.grid import Grid
    from evsys_std.search.random import Random
    from evsys_std.search.sobol import Sobol

__all__ = ["Asha", "Grid", "Random", "Sobol"]

_HOME = {"Asha": ".asha", "Grid": ".grid", "Random": ".random", "Sobol": ".sobol"}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)
