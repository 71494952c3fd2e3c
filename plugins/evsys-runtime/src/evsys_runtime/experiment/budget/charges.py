"""The cost of an arm's evaluations: charged once, regardless of how often they are interrupted, and reported if one
had no result.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from evsys.types import Usage
from evsys_runtime.evaluation.result_cache import ResultCache
from evsys_runtime.experiment.budget.budget import ArmBudget

__all__ = ["ScoringCharges", "remaining_usage"]


@attrs.define(kw_only=True)
class ScoringCharges:
    """Takes what each rollout used; those that an earlier attempt at the run was charged for aren't charged again.

    `taken_over` is what those used: it counts with the scoring that they are part of now.
    """

    budget: ArmBudget | None
    cache: ResultCache | None
    taken_over: Usage = attrs.field(factory=Usage)

    def __call__(self, usage: Usage) -> None:
        """Count what a rollout and its verdict used.

        Raises:
            BudgetExceeded: nothing is left.
        """
        if self.cache is not None and usage in self.cache.taken_over:
            self.cache.taken_over.remove(usage)
            self.taken_over += usage
            usage = Usage()
        if self.budget is not None:
            self.budget.charge(usage)


def remaining_usage(used: Usage, counted: Iterable[Usage]) -> Usage:
    """The part of the usage that isn't counted elsewhere; without time, since work is concurrent."""
    known = sum(counted, Usage(cost_usd=0.0))
    return Usage(
        prompt_tokens=max(0, used.prompt_tokens - known.prompt_tokens),
        completion_tokens=max(0, used.completion_tokens - known.completion_tokens),
        trained_tokens=max(0, used.trained_tokens - known.trained_tokens),
        cost_usd=_excess(used.cost_usd or 0.0, known.cost_usd or 0.0),
        unpriced=max(0, used.without_price - known.without_price),
    )


def _excess(cost: float, known: float) -> float:
    """0 where they differ by no more than the rounding of sums."""
    return 0.0 if cost - known <= 1e-9 * max(1.0, cost) else cost - known
