"""An upper bound for the cost of a search: its arms aren't known, so the most expensive sampled one represents
each.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.estimate.results import PlannedArm, PlannedSearch

__all__ = ["merge_search_arms", "planned_search", "with_stand_ins"]

MOST = 100
"""More arms than so many change little about what a verdict can see."""


def planned_search(plan: Plan) -> PlannedSearch | None:
    """The plan of a search; None if there isn't one."""
    search = plan.search
    if search is None:
        return None
    budget = plan.experiment.budget
    limits = [] if budget is None or budget.arms is None else [budget.arms // plan.experiment.n_repeats]
    arms = min([*limits, *([] if search.size is None else [search.size])], default=None)
    axes = [axis.path for axis in search.space.axes]
    return PlannedSearch(kind=search.spec.kind, arms=arms, stops=search.stops, axes=tuple(axes))


def with_stand_ins(plan: Plan) -> Plan:
    """A plan whose search has made its proposals, as far as they can be foreseen: as many arms as it may propose,
    each the most expensive one.
    """
    planned = planned_search(plan)
    if plan.search is None or planned is None:
        return plan
    longest = max(plan.search.probes, key=lambda arm: known_steps(arm.run) or 0)
    runs = [arm for arm in plan.search.probes if arm.name == longest.name]
    count = min(MOST, planned.arms or 1)
    arms = [attrs.evolve(arm, name=f"{planned.kind}-{n + 1}") for arm in runs for n in range(count)]
    return attrs.evolve(plan, arms=(*arms, *plan.arms))


def merge_search_arms(plan: Plan, arms: Sequence[PlannedArm]) -> list[PlannedArm]:
    """The arms of a search in one line, with the number of all their runs."""
    planned = planned_search(plan)
    if planned is None:
        return list(arms)
    first, *_ = chosen = [arm for arm in arms if arm.purpose == "candidate"]
    unknown = first.unknown
    if planned.arms is None:
        unknown = (
            *unknown,
            f"search {planned.kind} doesn't declare how many arms it proposes; these are the numbers of one",
        )
    elif planned.arms > MOST:
        unknown = (*unknown, f"scorings, and what the verdict will see, are counted for {MOST} arms")
    runs = first.runs * max(len(chosen), planned.arms or 1)
    one = attrs.evolve(first, arm=f"each arm of {planned.kind}", runs=runs, unknown=unknown)
    return [one, *(arm for arm in arms if arm.purpose != "candidate")]
