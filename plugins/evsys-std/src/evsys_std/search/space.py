"""Values of axes: at a place between 0 and 1, or spread evenly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evsys.types import SearchAxis

__all__ = ["Arm", "Entry", "arm_of", "key_of", "limit_arms", "spread", "tried_arms", "value_at"]

type Arm = Mapping[str, Any]
type Entry = Mapping[str, Any]

DIGITS = 4
"""Significant digits of a float between the ends of its range: names and reports show the very value."""


def arm_of(space: Sequence[SearchAxis], choose: Callable[[int, SearchAxis], Any]) -> dict[str, Any]:
    """An arm whose values are chosen axis by axis, on those that apply. `choose` also gets the axis's number."""
    arm: dict[str, Any] = {}
    for index, axis in enumerate(space):
        if axis.applies(arm):
            arm[axis.path] = choose(index, axis)
    return arm


def limit_arms(arms: int, space: Sequence[SearchAxis]) -> int:
    """So many arms, or fewer where the axes have fewer combinations, conditions left aside."""
    found = 1
    for axis in space:
        if not axis.choices and axis.type == "float":
            return arms
        # Where an axis may be left out there is one arm more for each of the others.
        found *= (len(axis.choices) or round(axis.high) - round(axis.low) + 1) + bool(axis.when)
    return min(arms, found)


def value_at(axis: SearchAxis, place: float) -> Any:
    """The value at `place`, from 0 to below 1: even places give each choice, each integer and each stretch its share."""
    if axis.choices:
        return axis.choices[min(int(place * len(axis.choices)), len(axis.choices) - 1)]
    if axis.type == "int":
        low, high = round(axis.low), round(axis.high)
        drawn = _between(low, high + 1, place, log=axis.log)
        return min(max(math.floor(drawn), low), high)
    return _rounded(axis, _between(axis.low, axis.high, place, log=axis.log))


def spread(axis: SearchAxis, points: int) -> tuple[Any, ...]:
    """All choices, or so many values of a range, from end to end at even distances; fewer where that has fewer integers."""
    if axis.choices:
        return axis.choices
    if points == 1 or axis.low == axis.high:
        places = [0.5] if axis.low != axis.high else [0.0]
    else:
        places = [index / (points - 1) for index in range(points)]
    values = [_between(axis.low, axis.high, place, log=axis.log) for place in places]
    if axis.type == "int":
        return tuple(dict.fromkeys(round(value) for value in values))
    return tuple(dict.fromkeys(_rounded(axis, value) for value in values))


def _between(low: float, high: float, place: float, *, log: bool) -> float:
    if log:
        return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    return low + place * (high - low)


def _rounded(axis: SearchAxis, value: float) -> float:
    return min(max(float(f"{value:.{DIGITS}g}"), float(axis.low)), float(axis.high))


def key_of(arm: Arm) -> str:
    """One text for equal arms."""
    return json.dumps(arm, sort_keys=True, ensure_ascii=False)


def tried_arms(history: Iterable[Entry]) -> set[str]:
    """The arms of a history by their keys."""
    return {key_of(entry["values"]) for entry in history}
