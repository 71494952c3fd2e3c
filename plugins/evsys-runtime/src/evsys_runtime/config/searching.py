"""A `search`: its space, and the checks before anything is spent.

The arms of a search aren't listed. Checked beforehand is the base run with each value of each axis in it, once:
each choice, and of a range its ends and a number between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.types.search import SearchAxis
from evsys_runtime.config import trees
from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.axes import Axis, Condition, read_axes, same, steps_of, touch
from evsys_runtime.config.document import Document
from evsys_runtime.config.expansion import Expansion
from evsys_runtime.config.grid import base_run, nobody_has, set_by
from evsys_runtime.config.model import AxisConfig, MatrixConfig
from evsys_runtime.config.naming import Namer
from evsys_runtime.config.paths import Segment
from evsys_runtime.config.report import Report
from evsys_runtime.config.space import Space, lies_on

__all__ = ["space_of_matrix"]


def space_of_matrix(
    document: Document, report: Report, matrix: MatrixConfig, refused: Collection[str] = ()
) -> Expansion:
    """The space that a matrix makes for a search, with the arms to look at beforehand.

    Args:
        document: the file, which has a matrix and a search.
        report: takes the problems.
        matrix: its usable part.
        refused: names of axes left out of it, and are reported already.
    """
    before = len(report.problems)
    base = base_run(document, report)
    axes, more = read_axes(matrix, document, report, refused, ranges=True)
    if matrix.zip:
        message = "a search chooses on each axis alone, so none can advance together"
        hint = "make them one axis, whose values are mappings"
        report.add(document.problem("$.matrix.zip", message, hint))
    for axis in axes:
        _refuse_twins(axis, document, report)
    steps = steps_of(axes, attrs.evolve(matrix, zip=()), document, report)
    if base is None:
        return Expansion(whole=False)
    place, tree = base
    ordered = [axes[step.axes[0]] for step in steps]
    space = Space(
        axes=tuple(_search_axes(ordered, tree, document, report)),
        given={_path_of(axis): axis for axis in axes},
        base=tree,
        place=place,
        template=matrix.name_template,
        document=document,
    )
    arms = _probe_arms(space, matrix, report)
    unknown = frozenset(path for name in (*refused, *more) for path in set_by(name))
    whole = not refused and not more and len(report.problems) == before
    return Expansion(arms=arms, whole=whole, unknown=unknown, space=space)


def _refuse_twins(axis: Axis, document: Document, report: Report) -> None:
    """A repeated choice would be two arms that are one."""
    seen: set[Any] = set()
    for value, place in zip(axis.values, axis.places, strict=True) if axis.scale is None else ():
        key = (
            trees.canonical(value) if isinstance(value, list | Mapping) else (isinstance(value, bool), value)
        )
        if key in seen:
            report.add(document.problem(place, f"the axis has {value!r} already", "remove it"))
        seen.add(key)


def _probe_arms(space: Space, matrix: MatrixConfig, report: Report) -> list[ArmTree]:
    arms: list[ArmTree] = []
    try:
        arms.extend(arm for _, arm in space.probes())
    except ValueError as exc:
        report.add(space.document.problem("$.matrix.axes", f"an axis can't be set: {exc}"))
    if matrix.name_template is not None and arms:
        axes = list(space.given.values())
        Namer(axes, space.base, matrix.name_template, space.document, report).name((), arms[0].tree)
    return arms


def _path_of(axis: Axis) -> str:
    return axis.run_path.removeprefix("$").removeprefix(".")


def _search_axes(
    axes: Sequence[Axis], base: Mapping[str, Any], document: Document, report: Report
) -> Iterator[SearchAxis]:
    """Axes as a search gets them: conditions read other axes alone, since what the base run decides is decided."""
    there: list[Axis] = []
    for axis in axes:
        when = _condition_values(axis, there, base, document, report)
        if when is None:
            report.warn(f"the axis {axis.name!r} applies to no arm: its condition never holds")
            continue
        there.append(axis)
        scale = axis.scale
        if scale is None:
            yield SearchAxis(path=_path_of(axis), choices=axis.values, when=when)
        else:
            yield SearchAxis(path=_path_of(axis), when=when, **_bounds(scale))


def _bounds(scale: AxisConfig) -> dict[str, Any]:
    return {"low": scale.low or 0, "high": scale.high or 0, "log": scale.log, "type": scale.type}


def _condition_values(
    axis: Axis, axes: Sequence[Axis], base: Mapping[str, Any], document: Document, report: Report
) -> dict[str, tuple[Any, ...]] | None:
    """The accepted values of the axes that an axis depends on; None where it applies to no arm."""
    when: dict[str, tuple[Any, ...]] = {}
    for condition in axis.when:
        found = _accepted_values(condition, axes, base, document, report)
        if found is None:
            return None
        for path, accepted in found.items():
            known = when.get(path)
            when[path] = accepted if known is None else tuple(one for one in known if one in accepted)
    return when if all(when.values()) else None


def _accepted_values(
    condition: Condition, axes: Sequence[Axis], base: Mapping[str, Any], document: Document, report: Report
) -> dict[str, tuple[Any, ...]] | None:
    """The accepted values of the axis that a condition reads; empty where the base run fulfils it, None where nothing does."""
    reads = [axis for axis in axes if touch(axis.path, condition.path)]
    fixed = trees.get(base, condition.path)
    holds = any(same(fixed, accepted) for accepted in condition.accepted)
    if not reads:
        if fixed is trees.MISSING:
            report.add(nobody_has(condition, base, document))
        return {} if holds else None
    axis, inside = reads[0], condition.path[len(reads[0].path) :]
    if len(reads) > 1 or len(axis.path) > len(condition.path):
        names = " and ".join(repr(one.name) for one in reads)
        message = f"it reads what {names} {'set' if len(reads) > 1 else 'sets a part of'}"
        hint = "in a search a condition reads a value that one axis sets"
        report.add(document.problem(condition.place, message, hint))
        return {}
    accepted = _accepted_values_of(axis, inside, condition)
    if holds and axis.when:  # where that axis is left out, the base run's value counts
        accepted.append(None)
    return {_path_of(axis): tuple(accepted)} if accepted else None


def _accepted_values_of(axis: Axis, inside: tuple[Segment, ...], condition: Condition) -> list[Any]:
    """The values of an axis by which a condition holds that reads what is `inside` them."""
    if axis.scale is None:
        wanted = condition.accepted
        return [one for one in axis.values if any(same(trees.get(one, inside), each) for each in wanted)]
    scale = SearchAxis(path=_path_of(axis), **_bounds(axis.scale))
    return [one for one in condition.accepted if not inside and lies_on(scale, one)]
