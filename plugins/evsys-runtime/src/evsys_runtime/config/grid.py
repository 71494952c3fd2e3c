"""A matrix to arms: the base run with the values of the axes set in it.

Trees share what they have in common: two arms with the same value on an axis hold the very same object below it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from evsys._plugins.refusals import closest
from evsys.errors import Problem
from evsys_runtime.config import paths, trees
from evsys_runtime.config.arm_tree import ArmTree, Digests, Origins
from evsys_runtime.config.axes import (
    NOT_SET,
    Axis,
    Condition,
    each_value,
    missing_parent,
    ordered_combinations,
    read_axes,
    run_path,
    same,
    steps_of,
)
from evsys_runtime.config.document import Document
from evsys_runtime.config.expansion import Expansion
from evsys_runtime.config.model import MatrixConfig
from evsys_runtime.config.naming import Namer
from evsys_runtime.config.report import Report
from evsys_runtime.config.scalars import describe

__all__ = ["MAX_ARMS", "arms_of_matrix", "base_run", "nobody_has", "set_by"]

MAX_ARMS = 100_000
"""More arms than anyone means; a matrix beyond this is refused before it is built."""

_LOOKED_AT = 1_000
"""Arms of a matrix that has too many, in which other problems are looked for."""

_UNKNOWN = object()


def arms_of_matrix(
    document: Document, report: Report, matrix: MatrixConfig, refused: Collection[str] = ()
) -> Expansion:
    """The arms of a matrix, or of as much of it as can be used, so that what else is wrong is found as well.

    Args:
        document: the file, which has a matrix.
        report: takes the problems.
        matrix: its usable part.
        refused: names of axes left out of it, and are reported already.
    """
    before = len(report.problems)
    base = base_run(document, report)
    axes, more = read_axes(matrix, document, report, refused)
    refused = {*refused, *more}
    steps = steps_of(axes, matrix, document, report, refused)
    if base is None:
        return Expansion(whole=False)
    unknown = frozenset(path for name in refused for path in set_by(name))
    usable = not refused and len(report.problems) == before
    size = math.prod(step.size for step in steps)
    too_many = size > MAX_ARMS and not any(axis.when for axis in axes)
    if too_many:
        report.add(_size_problem(document, size))
    place, tree = base
    grid = _Grid(document, report, tree, axes)
    chosen = each_value(steps, axes) if too_many else ordered_combinations(steps, axes, grid.holds)
    namer = Namer(axes, tree, matrix.name_template, document, report)
    arms = list(islice(_arms(grid, place, chosen, namer), MAX_ARMS + 1))
    if len(arms) > MAX_ARMS:
        report.add(_size_problem(document, None))
        del arms[_LOOKED_AT:]
    elif usable and not too_many:
        grid.note_unused(arms)
    whole = not refused and len(report.problems) == before
    return Expansion(arms=arms, whole=whole, unknown=unknown)


def set_by(name: str) -> Iterator[str]:
    """The path in a run that an axis of this name sets; empty if the name is not a path."""
    with suppress(ValueError):  # a name that is no path is reported as such
        yield paths.join(run_path(name))


def _arms(grid: _Grid, place: str, chosen: Iterable[tuple[int, ...]], namer: Namer) -> Iterator[ArmTree]:
    origins = [[(axis.run_path, where) for where in axis.places] for axis in grid.axes]
    made = tuple(
        (path, axis.place) for axis in grid.axes if (path := missing_parent(axis, grid.base)) is not None
    )
    for numbers in chosen:
        run, digest = grid.run(numbers)
        name = run["name"] = namer.name(numbers, run)
        marks = [pairs[index] for pairs, index in zip(origins, numbers, strict=True) if index != NOT_SET]
        yield ArmTree(name=name, tree=run, origins=Origins(base=place, axes=(*marks, *made)), digest=digest)


def _size_problem(document: Document, size: int | None) -> Any:
    count = f"{size:,}" if size else "too many"
    return document.problem(
        "$.matrix.axes",
        f"the axes give {count} arms; at most {MAX_ARMS:,} are accepted",
        "shorten an axis or zip some",
    )


def base_run(document: Document, report: Report) -> tuple[str, Mapping[str, Any]] | None:
    """The run that a matrix varies, and its place; None where there is none that can be used, which is reported."""
    beside = document.tree.get("base_run")
    within = trees.get(document.tree, ("matrix", "base_run"))
    within = None if within is trees.MISSING else within
    if beside is not None and within is not None:
        message = "'base_run' is given both inside the matrix and next to it"
        report.add(document.problem("$.base_run", message, "keep one of them"))
        return None
    place, base = ("$.base_run", beside) if within is None else ("$.matrix.base_run", within)
    if base is None:
        hint = "give 'base_run' what all arms share: data, model, algorithm, backend"
        report.add(document.problem("$.matrix", "the matrix has no 'base_run' to vary", hint))
        return None
    if not isinstance(base, Mapping):
        report.add(document.problem(place, f"a run must be a mapping, got {describe(base)}"))
        return None
    return place, base


class _Grid:
    """The base run with the values of the axes set in it; each distinct part is made once."""

    def __init__(
        self, document: Document, report: Report, base: Mapping[str, Any], axes: Sequence[Axis]
    ) -> None:
        self.document = document
        self.report = report
        self.base = base
        self.axes = axes
        self.digests = Digests()
        self.parts: dict[tuple[Any, ...], Any] = {}
        self.held: set[str] = set()
        # Of two axes in one part, the one that sets the whole comes before the one that sets something in it.
        self.by_key: dict[str, tuple[int, ...]] = {}
        for index in sorted(range(len(axes)), key=lambda index: len(axes[index].path)):
            top = str(axes[index].path[0])
            self.by_key[top] = (*self.by_key.get(top, ()), index)

    def run(self, chosen: Sequence[int]) -> tuple[dict[str, Any], str]:
        """The tree of one arm, and its digest."""
        tree = dict(self.base)
        for top, indices in self.by_key.items():
            part = self._part(top, tuple([chosen[index] for index in indices]))
            if part is not trees.MISSING:
                tree[top] = part
        return tree, self.digests.of(tree)

    def holds(self, condition: Condition, chosen: Sequence[int]) -> bool:
        """Whether a condition is true where these values are chosen."""
        top = str(condition.path[0])
        indices = self.by_key.get(top, ())
        part = self._part(top, tuple([chosen[index] for index in indices]))
        value = trees.get(part, condition.path[1:])
        holds = any(same(value, accepted) for accepted in condition.accepted)
        if holds:
            self.held.add(condition.place)
        return holds

    def _part(self, top: str, values: tuple[int, ...]) -> Any:
        key = (top, values)
        part = self.parts.get(key, _UNKNOWN)
        if part is _UNKNOWN:
            if values:  # what the axes before give is shared by all values of this one
                part = self._part(top, values[:-1])
                if values[-1] != NOT_SET:
                    part = self._set(part, self.axes[self.by_key[top][len(values) - 1]], values[-1])
            else:
                part = self.base.get(top, trees.MISSING)
            self.parts[key] = part
        return part

    def _set(self, part: Any, axis: Axis, value: int) -> Any:
        try:
            return trees.put({axis.path[0]: part}, axis.path, axis.values[value])[axis.path[0]]
        except ValueError as exc:
            self.report.add(self.document.problem(axis.place, f"the axis can't be set: {exc}"))
            return part

    def note_unused(self, arms: Sequence[ArmTree]) -> None:
        """Warn of conditions that hold in no arm, and refuse those that read what no arm has."""
        for axis in self.axes:
            for condition in axis.when:
                if condition.place in self.held:
                    continue
                if all(trees.get(arm.tree, condition.path) is trees.MISSING for arm in arms):
                    tree = arms[0].tree if arms else {}
                    self.report.add(nobody_has(condition, tree, self.document))
                else:
                    self.report.warn(f"the axis {axis.name!r} applies to no arm: its condition never holds")


def nobody_has(condition: Condition, tree: Mapping[str, Any], document: Document) -> Problem:
    """The problem of a condition on a path that no arm has; `tree` is a typical arm."""
    name = ".".join(map(str, condition.path))
    hint = closest(name, sorted(_dotted_paths(tree)))
    return document.problem(condition.place, f"no arm has {name!r}", hint)


def _dotted_paths(tree: Any, prefix: str = "") -> list[str]:
    """The paths of all keys of nested mappings."""
    if not isinstance(tree, Mapping):
        return []
    found = []
    for key, value in tree.items():
        found += [f"{prefix}{key}", *_dotted_paths(value, f"{prefix}{key}.")]
    return found
