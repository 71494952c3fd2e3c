"""Which part of what a search chooses from lies in a region of failures: all of it, some values of its axes, or nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from evsys.types.search import SearchAxis
from evsys_record.leaves import short_leaves
from evsys_record.text import list_names
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.search_plan import PlannedSearch
from evsys_runtime.experiment.insight.failures import meets, parse_number
from evsys_runtime.experiment.insight.results import Condition, Region
from evsys_runtime.experiment.state.resolved_tree import resolved_runs

__all__ = ["WHOLE", "SearchSpace"]

WHOLE = ""
"""The part of something that is all of it."""


@attrs.frozen(kw_only=True)
class _Probe:
    """An arm looked at: its value on each axis that it has, and its whole config as JSON texts."""

    values: Mapping[str, object]
    config: Mapping[str, str]


@attrs.frozen(kw_only=True)
class SearchSpace:
    """The space of a search: its axes, and arms that together have each choice of each."""

    axes: Sequence[SearchAxis]
    probes: Sequence[_Probe]

    @classmethod
    def from_plan(cls, plan: Plan, search: PlannedSearch) -> SearchSpace:
        """The space of a plan's search."""
        values = {arm.digest: values for values, arm in search.space.probes()}
        runs = resolved_runs(plan, [attrs.evolve(arm, name=arm.digest) for arm in search.probes])
        probes = [_Probe(values=values[name], config=short_leaves(run)) for name, run in runs.items()]
        return cls(axes=search.space.axes, probes=probes)

    def overlap(self, region: Region) -> str | None:
        """The part of it that lies in a region, as what holds there: `WHOLE` where all of it does, None where nothing."""
        of_path: dict[str, list[Condition]] = {}
        for condition in region.conditions:
            of_path.setdefault(condition.path, []).append(condition)
        parts = [self._meeting(path, conditions) for path, conditions in of_path.items()]
        known = [part for part in parts if part is not None]
        return " and ".join(filter(None, known)) if len(known) == len(parts) else None

    def _meeting(self, path: str, conditions: Sequence[Condition]) -> str | None:
        """The part that meets the conditions of a path."""
        axis = next((axis for axis in self.axes if axis.path == path and not axis.choices), None)
        fixed = {
            one.config.get(path, ""): all(meets(one.config, condition) for condition in conditions)
            for one in self.probes
            if axis is None or path not in one.values
        }
        drawn = None if axis is None else _range_overlap(conditions, axis)
        if not any(fixed.values()) and (axis is None or drawn is None):
            return None
        if all(fixed.values()) and (axis is None or drawn == WHOLE):
            return WHOLE
        parts = [drawn or f"{path} wherever it is drawn"] if drawn is not None else []
        if any(fixed.values()):
            parts.append(f"{path} = {list_names([text for text, inside in fixed.items() if inside])}")
        return " or ".join(parts)


def _range_overlap(conditions: Sequence[Condition], axis: SearchAxis) -> str | None:
    """The part of a range that meets conditions, and which share of the range that is."""
    first, last = low, high = axis.low, axis.high
    for condition in conditions:
        edge = parse_number(condition.value)
        if edge is None or (condition.relation == "=" and axis.type == "float" and edge not in (low, high)):
            return None  # a number that is drawn is hardly ever that one
        first = first if condition.relation == "<=" else max(first, edge)
        last = last if condition.relation == ">=" else min(last, edge)
    if axis.type == "int":
        first, last = math.ceil(first), math.floor(last)
    if first > last:
        return None
    if (first, last) == (low, high):
        return WHOLE
    if first == last:
        return f"{axis.path} = {_value_text(first)}"
    share = f"{_share(axis, first, last):.0%} of {_value_text(low)} to {_value_text(high)}"
    return f"{axis.path} from {_value_text(first)} to {_value_text(last)} ({share})"


def _value_text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _share(axis: SearchAxis, first: float, last: float) -> float:
    """How often a number drawn evenly lies between two."""
    low, high = axis.low, axis.high
    if axis.type == "int":  # each is what lies from it to the next
        last, high = last + 1, high + 1
    if axis.log:
        first, last, low, high = (math.log(each) for each in (first, last, low, high))
    return (last - first) / (high - low)
