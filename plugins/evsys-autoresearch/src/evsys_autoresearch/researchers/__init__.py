"""Researchers: who proposes the next experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_autoresearch.researchers.chatting import Llm
    from evsys_autoresearch.researchers.climbing import Greedy
    from evsys_autoresearch.researchers.following import Next
    from evsys_autoresearch.researchers.searching import Bayesian, Random

__all__ = ["Bayesian", "Greedy", "Llm", "Next", "Random"]

_HOME = {
    "Bayesian": ".searching",
    "Greedy": ".climbing",
    "Llm": ".chatting",
    "Next": ".following",
    "Random": ".searching",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)
