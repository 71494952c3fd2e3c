"""How a research run ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys.types import Round
from evsys_autoresearch.ending import Winner

__all__ = ["ResearchResult", "Verdict"]

type Verdict = Literal["improved", "not_improved", "not_confirmed", "unsealed", "invalid"]


@attrs.frozen(kw_only=True)
class ResearchResult:
    """How a research run ended.

    `improved`: the winner beat the start with fresh seeds, and beat it on the sealed test by at least the minimum effect beyond
    chance. `not_improved`: no arm scored better than the start. `not_confirmed`: the best arm failed one of the two. `unsealed`: there
    is no sealed test, so nothing is claimed. `invalid`: a file that decides scores was changed meanwhile. `sealed` compares the two on
    the sealed test; `reason` is why the rounds ended. `referees` has the best score so far after each round of the researchers that got the
    same budget; they don't see the sealed test.
    """

    research_id: str
    directory: str
    verdict: Verdict
    reason: str
    goal: str
    metric: str
    researcher: str
    start_score: float | None
    winner: Winner | None = None
    confirmation: Mapping[str, Any] | None = None
    sealed: Mapping[str, Any] | None = None
    rounds: tuple[Round, ...] = ()
    broken_rules: tuple[Mapping[str, Any], ...] = ()
    spent: Mapping[str, float] = attrs.field(factory=dict)
    referees: Mapping[str, tuple[float | None, ...]] = attrs.field(factory=dict)
    larger: bool = True
    unprotected: bool = False
