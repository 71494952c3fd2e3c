"""Automated research: `evsys research GOAL.yaml`, its researchers, and a measure of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_autoresearch.goal import Goal, load_goal
    from evsys_autoresearch.result import ResearchResult
    from evsys_autoresearch.runner import Research

__all__ = ["Goal", "Research", "ResearchResult", "load_goal"]

_HOME = {"Goal": ".goal", "load_goal": ".goal", "Research": ".runner", "ResearchResult": ".result"}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)
