"""`random` and `bayesian`: the search plugins as researchers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import current_registry, option
from evsys.types import Proposal, ResearchState, Stop
from evsys_autoresearch.researchers.space import history, proposal_of, words

__all__ = ["Bayesian", "Random"]

ENDLESS = 100_000
"""More arms than there are rounds: the budget ends the research, not the search."""


class _Searching:
    """Asks a search plugin for the next arm."""

    search: ClassVar[str]
    uses_context: ClassVar[bool] = False

    def _params(self, state: ResearchState) -> Mapping[str, Any]:
        return {"arms": ENDLESS, "seed": state.seed}

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        """The next arm of the search."""
        if not state.space:
            return Stop(reason="no lever has values or a range to search")
        search = current_registry().build("search", self.search, self._params(state))
        arms = search.ask(history(state), list(state.space))
        if not arms:
            return Stop(reason="every arm of the space was tried")
        return proposal_of(state, arms[0], f"The start improves with {words(state, arms[0])}.")


class Random(_Searching):
    """Draws each value independently and evenly: the baseline that any researcher has to beat."""

    name: ClassVar[str] = "random"
    search: ClassVar[str] = "random"


class Bayesian(_Searching):
    """Proposes where Optuna's estimate of the expected improvement is highest (tree-structured Parzen estimators, Bergstra et al. 2011)."""

    name: ClassVar[str] = "bayesian"
    search: ClassVar[str] = "optuna"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `bayesian`."""

        startup: int = option(5, "arms drawn at random before scores count", ge=1)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def _params(self, state: ResearchState) -> Mapping[str, Any]:
        return {**super()._params(state), "startup": self.config.startup}
