"""The axes of a matrix: which values go together, and in which order.

The first axis of the file varies slowest. Axes of a `zip` group advance together. An axis with `when` is left out of
the arms in which its condition doesn't hold; it is decided after the axes that the condition reads.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys._plugins.refusals import closest
from evsys_runtime.config import paths, trees
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import AxisConfig, MatrixConfig
from evsys_runtime.config.paths import Segment
from evsys_runtime.config.report import Report

__all__ = [
    "NOT_SET",
    "Axis",
    "Condition",
    "Step",
    "each_value",
    "missing_parent",
    "ordered_combinations",
    "read_axes",
    "run_path",
    "same",
    "steps_of",
    "touch",
]

NOT_SET = -1
"""Represents the value of an axis in an arm that it doesn't apply to."""


@attrs.frozen(kw_only=True)
class Condition:
    """One entry of a `when`: the value at `path` is one of `accepted`."""

    path: tuple[Segment, ...]
    accepted: tuple[Any, ...]
    place: str


@attrs.frozen(kw_only=True, eq=False)
class Axis:
    """One axis. `path` leads into a run, `place` and `places` are where the axis and its values are in the file.

    Of a range, which has a `scale`, the values are its ends and one between them.
    """

    name: str
    path: tuple[Segment, ...]
    values: tuple[Any, ...]
    place: str
    places: tuple[str, ...]
    when: tuple[Condition, ...] = ()
    scale: AxisConfig | None = None

    @property
    def run_path(self) -> str:
        """Its path as problems of a run print it."""
        return paths.join(self.path)


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """Axes that advance together."""

    axes: tuple[int, ...]
    size: int


def run_path(name: str) -> tuple[Segment, ...]:
    """The path inside a run; `run.seed` and `seed` are the same.

    Raises:
        ValueError: the text isn't a path.
    """
    segments = paths.parse(name)
    return segments[1:] if len(segments) > 1 and segments[0] in {"run", "base_run"} else segments


def read_axes(
    matrix: MatrixConfig,
    document: Document,
    report: Report,
    refused: Collection[str] = (),
    *,
    ranges: bool = False,
) -> tuple[list[Axis], list[str]]:
    """The axes of a matrix, and the names of those that can't be used, which are reported.

    `refused` names axes that the matrix had and that are reported already. `ranges` says whether an axis may be one.
    """
    axes: list[Axis] = []
    unusable: list[str] = []
    root = "$.matrix.axes"
    if not matrix.axes and not refused:
        report.add(document.problem(root, "there is no axis", "give at least one, or use `run`"))
    for name, given in matrix.axes.items():
        place = paths.child(root, name)
        scale = given if isinstance(given, AxisConfig) and _is_range(given) else None
        if scale is not None and (wrong := _wrong_range(scale, ranges=ranges)):
            report.add(document.problem(place, *wrong))
            unusable.append(name)
            continue
        values, places = _values(given, place)
        try:
            path = run_path(name)
            when = _conditions(given.when, place) if isinstance(given, AxisConfig) else ()
        except ValueError as exc:
            report.add(document.problem(place, str(exc)))
            unusable.append(name)
            continue
        twin = next((axis for axis in axes if axis.path == path), None)
        if twin is not None:
            report.add(document.problem(place, f"this is the same axis as {twin.name!r}", "keep one of them"))
            unusable.append(name)
        elif not values:
            report.add(
                document.problem(place, "the axis has no values", "give at least one, or remove the axis")
            )
            unusable.append(name)
        else:
            axes.append(
                Axis(name=name, path=path, values=values, place=place, places=places, when=when, scale=scale)
            )
    return axes, unusable


def _is_range(axis: AxisConfig) -> bool:
    return axis.values is None or axis.low is not None or axis.high is not None


def _wrong_range(axis: AxisConfig, *, ranges: bool) -> tuple[str, str] | None:
    """The problem of an axis without values, with a fix; None if it is a usable range."""
    low, high = axis.low, axis.high
    if low is None or high is None or axis.values is not None:
        return "an axis has 'values', or 'low' and 'high'", "give either"
    if not ranges:
        return (
            "a range can't be tried out in full",
            "list its values, or choose a search: search: {kind: random}",
        )
    if low == high:
        return f"a range has more numbers than one, this only {low}", "put it into the base run instead"
    if not low < high:
        return f"a range goes from a lower number to a higher one, this from {low} to {high}", "swap them"
    if not math.isfinite(high - low):
        return f"nothing can be drawn evenly from {low} to {high}", "take ends that lie less far apart"
    if axis.log and low <= 0:
        return "a range with 'log' begins above 0", "raise 'low', or leave 'log' out"
    if axis.type == "int" and not (float(low).is_integer() and float(high).is_integer()):
        return "a range of integers has integers as its ends", "round them, or leave 'type' out"
    return None


def _values(given: Any, place: str) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The values of an axis, and their places; of a range its ends and one between them."""
    if not isinstance(given, AxisConfig):
        return given, tuple(paths.child(place, index) for index in range(len(given)))
    if given.values is not None:
        inside = paths.child(place, "values")
        return given.values, tuple(paths.child(inside, index) for index in range(len(given.values)))
    low, high = given.low or 0, given.high or 0
    if given.type == "int":
        ends: tuple[Any, ...] = (int(low), int(high), int(low + high) // 2)
    else:
        # Not the half, which may be a round number where the ends are.
        ends = (float(low), float(high), float(f"{low + (math.sqrt(5) - 1) / 2 * (high - low):.4g}"))
    return ends, (paths.child(place, "low"), paths.child(place, "high"), place)


def _conditions(when: Mapping[str, Any], place: str) -> tuple[Condition, ...]:
    conditions = []
    for name, accepted in when.items():
        options = tuple(accepted) if isinstance(accepted, list | tuple) else (accepted,)
        where = paths.child(paths.child(place, "when"), name)
        conditions.append(Condition(path=run_path(name), accepted=options, place=where))
    return tuple(conditions)


def steps_of(
    axes: Sequence[Axis],
    matrix: MatrixConfig,
    document: Document,
    report: Report,
    refused: Collection[str] = (),
) -> list[Step]:
    """Axes grouped by `zip`, in the order of the file but after the axes that their conditions read.

    `refused` names axes that aren't among `axes`, and that a `zip` may still name.
    """
    group_of: dict[int, int] = {}
    groups: list[list[int]] = []
    for number, names in enumerate(matrix.zip):
        members: list[int] = []
        for position, name in enumerate(names):
            place = f"$.matrix.zip[{number}][{position}]"
            index = None if name in refused else _axis_named(name, axes, document, report, place)
            if index is not None and index in group_of:
                report.add(document.problem(place, f"the axis {name!r} is zipped already", "name it once"))
            elif index is not None:
                group_of[index] = number
                members.append(index)
        groups.append(members)
        sizes = {len(axes[index].values) for index in members}
        if len(sizes) > 1:
            listed = ", ".join(f"{axes[index].name} has {len(axes[index].values)}" for index in members)
            report.add(
                document.problem(f"$.matrix.zip[{number}]", f"zipped axes need equally many values: {listed}")
            )
    steps = []
    for index in range(len(axes)):
        members = groups[group_of[index]] if index in group_of else [index]
        if index == min(members):
            steps.append(
                Step(axes=tuple(sorted(members)), size=min(len(axes[member].values) for member in members))
            )
    return _sort_by_dependency(steps, axes, document, report)


def _axis_named(
    name: str, axes: Sequence[Axis], document: Document, report: Report, place: str
) -> int | None:
    try:
        path = run_path(name)
    except ValueError as exc:
        report.add(document.problem(place, str(exc)))
        return None
    for index, axis in enumerate(axes):
        if axis.path == path:
            return index
    known = [axis.name for axis in axes]
    hint = closest(name, known) or f"axes: {', '.join(known)}"
    report.add(document.problem(place, f"there is no axis {name!r}", hint))
    return None


def _sort_by_dependency(
    steps: list[Step], axes: Sequence[Axis], document: Document, report: Report
) -> list[Step]:
    """Steps in the order of the file, but each after those that its conditions read."""

    def reads(step: Step, other: Step) -> bool:
        read = [condition.path for index in step.axes for condition in axes[index].when]
        written = [axes[index].path for index in other.axes]
        return any(touch(a, b) for a in read for b in written)

    ordered: list[Step] = []
    waiting = list(steps)
    while waiting:
        ready = next(
            (
                step
                for step in waiting
                if not any(reads(step, other) for other in waiting if other is not step)
            ),
            None,
        )
        if ready is None:
            axis = axes[waiting[0].axes[0]]
            report.add(
                document.problem(
                    axis.place, "the conditions of axes wait for each other", "remove one `when`"
                )
            )
            return [*ordered, *waiting]
        waiting.remove(ready)
        ordered.append(ready)
    return ordered


def touch(a: tuple[Segment, ...], b: tuple[Segment, ...]) -> bool:
    """True where one path is the other or leads into it."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def each_value(steps: Sequence[Step], axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Arms that together have every value of every axis, one more than there are values to vary: for finding what
    is wrong with values of a matrix too large to check all of it.
    """
    first = [0] * len(axes)
    yield tuple(first)
    for step in steps:
        for value in range(1, step.size):
            chosen = list(first)
            for index in step.axes:
                chosen[index] = value
            yield tuple(chosen)


def ordered_combinations(
    steps: Sequence[Step], axes: Sequence[Axis], holds: Any
) -> Iterator[tuple[int, ...]]:
    """Each arm as the index of its value on every axis, `NOT_SET` where an axis doesn't apply.

    Args:
        steps: what varies, slowest first.
        axes: the axes that the steps number.
        holds: `(condition, chosen) -> bool`.
    """
    chosen = [NOT_SET] * len(axes)

    def from_step(number: int) -> Iterator[tuple[int, ...]]:
        if number == len(steps):
            yield tuple(chosen)
            return
        step = steps[number]
        conditions = [condition for index in step.axes for condition in axes[index].when]
        applies = all(holds(condition, chosen) for condition in conditions)
        for value in range(step.size) if applies else (NOT_SET,):
            for index in step.axes:
                chosen[index] = value
            yield from from_step(number + 1)
        for index in step.axes:
            chosen[index] = NOT_SET

    return from_step(0)


def missing_parent(axis: Axis, base: Mapping[str, Any]) -> str | None:
    """The mapping on the way to an axis's value that the base run lacks, None where it has all of them."""
    for length in range(1, len(axis.path)):
        if trees.get(base, axis.path[:length]) is trees.MISSING:
            return paths.join(axis.path[:length])
    return None


def same(a: Any, b: Any) -> bool:
    """Whether two values of a file are one: true isn't 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
