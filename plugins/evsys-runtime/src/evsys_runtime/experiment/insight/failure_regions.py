"""The failure warnings of `evsys validate` and `plan`: arms and search spaces in regions where others failed and
none completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys_record.index import Index
from evsys_record.leaves import short_leaves
from evsys_record.text import list_names
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.failures import BAD, failure_classes, lies_in
from evsys_runtime.experiment.insight.results import FailureClass, Region
from evsys_runtime.experiment.lineage.experiments import earlier_index

__all__ = ["FailureRegions", "failure_warnings"]

_MOST_NAMED = 3
_PLACES = ", ".join("?" * len(BAD))


def failure_warnings(plan: Plan, index: Index) -> tuple[str, ...]:
    """A warning for each region of failures known to be bad and has arms of the plan in it, or some of what its search chooses
    from. Nothing is read but the index.
    """
    if not _anything_failed(index):
        return ()
    from evsys_runtime.experiment.state.resolved_tree import (
        planned_leaves,  # half of the runtime, for what is asked seldom
    )

    planned = planned_leaves(plan)
    on_record = ArmsOnRecord.from_index(index)
    known = FailureRegions.from_classes(failure_classes(index, on_record))
    warnings = [*known.arms(planned), *known.search_warnings(plan)]
    return tuple(dict.fromkeys(warnings))


def _anything_failed(index: Index) -> bool:
    return bool(index.rows(f"SELECT 1 FROM run WHERE state IN ({_PLACES}) OR diverged LIMIT 1", BAD))  # noqa: S608


@attrs.frozen(kw_only=True)
class FailureRegions:
    """The regions known to be bad, each with the way in which runs failed there."""

    classes: Sequence[tuple[Region, FailureClass]]

    @classmethod
    def from_earlier(cls, experiments: Path, own: str, tell: Callable[[str], None]) -> FailureRegions:
        """Those that an experiment finds on record, regardless of its own runs.

        Args:
            experiments: the folder of all.
            own: that experiment.
            tell: gets why they can't be looked up.
        """
        with earlier_index(experiments, own, tell, wanted="known bad regions") as index:
            if index is None or not _anything_failed(index):
                return cls(classes=())
            return cls.from_classes(failure_classes(index, without=own))

    @classmethod
    def from_classes(cls, classes: Iterable[FailureClass]) -> FailureRegions:
        """Those of some ways to fail."""
        regions = ((each.region, each) for each in classes)
        return cls(classes=[(region, each) for region, each in regions if region and region.known_bad])

    def regions_of_run(self, run: Mapping[str, Any]) -> list[str]:
        """The regions that a run lies in, by its config as resolved.json has it."""
        config = short_leaves(run) if self.classes else {}
        return [str(region) for region, _ in self.classes if lies_in(config, region)]

    def arms(self, planned: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """The warnings about arms, by their values as JSON texts."""
        for region, each in self.classes:
            inside = [name for name, config in planned.items() if lies_in(config, region)]
            if inside:
                yield f"{_arms(inside, len(planned))} where {_failure_warning(region, each)}"

    def search_warnings(self, plan: Plan) -> Iterator[str]:
        """The warnings about the space of a plan's search."""
        if plan.search is None or not self.classes:
            return
        from evsys_runtime.experiment.insight.search_spaces import WHOLE, SearchSpace

        space = SearchSpace.from_plan(plan, plan.search)
        for region, each in self.classes:
            part = space.overlap(region)
            if part == WHOLE:
                yield f"every arm that the search can propose lies where {_failure_warning(region, each)}"
            elif part is not None:
                yield f"the search can propose arms with {part}, where {_failure_warning(region, each)}"


def _failure_warning(region: Region, each: FailureClass) -> str:
    return (
        f"{region.failed} configs failed on record and none completed: {region} "
        f"({each.name}: {each.message}; {list_names(each.experiments, _MOST_NAMED)})"
    )


def _arms(inside: Sequence[str], planned: int) -> str:
    if planned == 1:
        return "it lies"
    if len(inside) == planned:
        return f"all {planned} arms lie"
    return (
        f"arm {inside[0]} lies"
        if len(inside) == 1
        else f"{len(inside)} of {planned} arms ({list_names(inside, _MOST_NAMED)}) lie"
    )
