"""The space of a search: its axes, and the arms that values on them make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.types.search import SearchAxis
from evsys_runtime.config import trees
from evsys_runtime.config.arm_tree import ArmTree, Digests, Origins
from evsys_runtime.config.axes import NOT_SET, Axis, missing_parent, same
from evsys_runtime.config.document import Document
from evsys_runtime.config.naming import Namer
from evsys_runtime.config.report import Report

__all__ = ["Space", "lies_on"]


@attrs.frozen(kw_only=True, eq=False)
class Space:
    """The space of a search: `axes`, in an order in which each comes behind those that its conditions read.

    `base` is at `place`; `given` are the axes as the file has them, by path.
    """

    axes: tuple[SearchAxis, ...]
    given: Mapping[str, Axis]
    base: Mapping[str, Any]
    place: str
    template: str | None
    document: Document
    _namer: Namer = attrs.field(init=False)

    @_namer.default
    def _name_arms(self) -> Namer:
        # What is wrong with a template is reported with the first arms.
        return Namer(list(self.given.values()), self.base, self.template, self.document, Report())

    def wrong(self, values: Mapping[str, Any]) -> str | None:
        """Why values are not an arm of this space; None where they are one."""
        for path in values:
            if all(axis.path != path for axis in self.axes):
                return f"there is no axis {path!r}"
        for axis in self.axes:
            if not axis.applies(values):
                if axis.path in values:
                    return f"the axis {axis.path!r} doesn't apply to it"
            elif axis.path not in values:
                return f"it has no value on the axis {axis.path!r}"
            elif not lies_on(axis, values[axis.path]):
                return f"{values[axis.path]!r} isn't on the axis {axis.path!r}"
        return None

    def arm(self, values: Mapping[str, Any], origins: Sequence[tuple[str, str]] = ()) -> ArmTree:
        """The base run with these values in it, named by them.

        Raises:
            ValueError: a value can't be set where its axis leads.
        """
        tree = dict(self.base)
        # Of two axes in one part, the one that sets the whole comes before the one that sets something in it.
        for path in sorted(values, key=lambda path: len(self.given[path].path)):
            tree = trees.put(tree, self.given[path].path, values[path])
        tree["name"] = self._name(values, tree)
        return ArmTree(
            name=tree["name"],
            tree=tree,
            origins=Origins(base=self.place, axes=tuple(origins)),
            digest=Digests().of(tree),
        )

    def _name(self, values: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
        chosen, drawn = [], {}
        for number, (path, axis) in enumerate(self.given.items()):
            if path not in values:
                chosen.append(NOT_SET)
            elif axis.scale is not None:
                drawn[number] = values[path]
                chosen.append(0)
            else:
                chosen.append(next(i for i, one in enumerate(axis.values) if same(one, values[path])))
        return self._namer.name(chosen, tree, drawn)

    def probes(self) -> Iterator[tuple[Mapping[str, Any], ArmTree]]:
        """Arms that together have each value of each axis that applies to any arm, with the values that make them.

        Raises:
            ValueError: a value can't be set where its axis leads.
        """
        seen: set[str] = set()
        for axis in self.axes:
            for value in self.given[axis.path].values:
                values = self._with(axis, value)
                key = trees.canonical(values)
                if axis.path in values and key not in seen:
                    seen.add(key)
                    yield values, self.arm(values, [*self._marks(values)])

    def _with(self, axis: SearchAxis, value: Any) -> dict[str, Any]:
        """Values of an arm with this one, and else the first ones that let its axis apply."""
        by_path = {one.path: one for one in self.axes}
        forced = {axis.path: value}
        waiting = [axis]
        while waiting:
            for path, accepted in waiting.pop().when.items():
                wanted = next((one for one in accepted if one is not None), None)
                if path not in forced and wanted is not None:
                    forced[path] = wanted
                    waiting.append(by_path[path])
        values: dict[str, Any] = {}
        for one in self.axes:
            if one.applies(values):
                values[one.path] = forced.get(one.path, self.given[one.path].values[0])
        return values

    def _marks(self, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for path, value in values.items():
            axis = self.given[path]
            index = next((i for i, one in enumerate(axis.values) if same(one, value)), None)
            yield axis.run_path, axis.place if index is None else axis.places[index]
            if (made := missing_parent(axis, self.base)) is not None:
                yield made, axis.place


def lies_on(axis: SearchAxis, value: Any) -> bool:
    """Whether a value is one that an axis of a search can take."""
    if axis.choices:
        return any(same(one, value) for one in axis.choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return axis.low <= value <= axis.high and (axis.type == "float" or isinstance(value, int))
