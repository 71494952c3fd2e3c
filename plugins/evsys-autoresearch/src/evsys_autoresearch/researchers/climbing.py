"""`greedy`: change one thing, keep it if the score is better."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import Proposal, ResearchState, Stop
from evsys_autoresearch.researchers.space import (
    arm_of_round,
    key_of,
    move_one,
    oriented,
    proposal_of,
    start_arm,
    words,
)

__all__ = ["Greedy"]

TRIES = 200
"""Draws in a row that were all tried, after which the space counts as used up."""


class Greedy:
    """Changes one value of the best arm so far and keeps the change if the score is higher, whatever its error: the usual loop of
    coding agents, and the baseline for others.
    """

    name: ClassVar[str] = "greedy"
    uses_context: ClassVar[bool] = False

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `greedy`."""

        spread: float = option(0.2, "standard deviation of a step, as a share of an axis", gt=0, le=1)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        """A change of the best arm."""
        if not state.space:
            return Stop(reason="no lever has values or a range to search")
        best, number, score = start_arm(state), 0, oriented(state, state.start_score or 0.0)
        tried = {key_of(best)}
        for each in state.rounds:
            if not each.changes:
                continue
            tried.add(key_of(arm_of_round(state, each)))
            if each.score is not None and oriented(state, each.score) > score:
                best, number, score = arm_of_round(state, each), each.number, oriented(state, each.score)
        rng = random.Random(f"greedy/{state.seed}/{len(state.rounds)}")
        for _ in range(TRIES):
            arm = move_one(state.space, best, rng, self.config.spread)
            if key_of(arm) not in tried:
                hypothesis = f"The best so far improves with {words(state, arm)}."
                return proposal_of(state, arm, hypothesis, builds_on=(number,) if number else ())
        return Stop(reason="every neighbour of the best arm was tried")
