"""The sources that add arms to those of the file, in the order in which they are asked."""

from __future__ import annotations

from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.search.confirmation import Confirmation
from evsys_runtime.experiment.search.search import Searching
from evsys_runtime.experiment.state.session import ArmSource

__all__ = ["sources_of"]


def sources_of(plan: Plan) -> tuple[ArmSource, ...]:
    """A search comes first, then what confirms the winner."""
    sources: list[ArmSource] = []
    if plan.search is not None:
        sources.append(Searching(plan.search, plan.registry, plan.experiment.base_seed))
    if plan.experiment.confirm is not None:
        sources.append(Confirmation())
    return tuple(sources)
