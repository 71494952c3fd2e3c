"""The space under the levers, as researchers search it: arms as values by path, and the rounds as a search's history."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from evsys.types import Proposal, ResearchState, Round, SearchAxis
from evsys_autoresearch.levers import apply_changes
from evsys_runtime.config import paths, trees

__all__ = [
    "arm_of_round",
    "draw",
    "history",
    "key_of",
    "move_one",
    "oriented",
    "proposal_of",
    "start_arm",
    "value_near",
    "words",
]

DIGITS = 4
"""Significant digits of a number between the ends of its range."""

type Arm = Mapping[str, Any]


def start_arm(state: ResearchState) -> dict[str, Any]:
    """The start's values on the axes."""
    found = {axis.path: trees.get(state.start, paths.parse(axis.path)) for axis in state.space}
    return {path: value for path, value in found.items() if value is not trees.MISSING}


def arm_of_round(state: ResearchState, each: Round) -> dict[str, Any]:
    """A round's values on the axes."""
    arm = start_arm(state)
    for axis in state.space:
        value = trees.get(apply_changes(state.start, each.changes), paths.parse(axis.path))
        if value is not trees.MISSING:
            arm[axis.path] = value
    return arm


def key_of(arm: Arm) -> str:
    """One text for equal arms."""
    return json.dumps(arm, sort_keys=True)


def oriented(state: ResearchState, score: float) -> float:
    """A score so that more is better."""
    return score if state.direction == "max" else -score


def history(state: ResearchState) -> list[dict[str, Any]]:
    """The start and the rounds as a search knows its arms; a lost or failed round has no score. Arms outside of the space, as a start
    may be, are left out.
    """
    entries: list[tuple[Arm, float | None, str, str | None]] = []
    if state.start_score is not None:
        entries.append((start_arm(state), state.start_score, "completed", None))
    for each in state.rounds:
        if each.changes and each.repeats is None and not each.cheap:
            status = "completed" if each.status == "scored" else "failed"
            entries.append((arm_of_round(state, each), each.score, status, each.reason))
    inside = [entry for entry in entries if _is_inside(entry[0], state.space)]
    return [
        {
            "n": number,
            "values": values,
            "status": status,
            "score": None if score is None else oriented(state, score),
            "steps": 0,
            "reason": reason,
            "scores": [],
            "stopped_at": None,
        }
        for number, (values, score, status, reason) in enumerate(inside)
    ]


def _is_inside(arm: Arm, space: Sequence[SearchAxis]) -> bool:
    for axis in space:
        value = arm.get(axis.path)
        if axis.choices:
            if not any(type(value) is type(one) and value == one for one in axis.choices):
                return False
        elif (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not axis.low <= value <= axis.high
        ):
            return False
    return True


def proposal_of(
    state: ResearchState,
    values: Arm,
    hypothesis: str,
    *,
    builds_on: tuple[int, ...] = (),
    tasks: int | None = None,
) -> Proposal:
    """The proposal of an arm by its values on the axes."""
    return Proposal(
        config=apply_changes(state.start, values),
        hypothesis=hypothesis,
        expected_effect=state.minimum_effect,
        builds_on=builds_on,
        tasks=tasks,
    )


def words(state: ResearchState, values: Arm) -> str:
    """The changes of an arm in words, for a hypothesis."""
    start = start_arm(state)
    parts = [
        f"{path.rpartition('.')[2]} {json.dumps(value)}"
        for path, value in values.items()
        if key_of({"": start.get(path)}) != key_of({"": value})
    ]
    return ", ".join(parts) or "the start's values"


def draw(axis: SearchAxis, rng: random.Random) -> Any:
    """A value drawn evenly."""
    if axis.choices:
        return rng.choice(axis.choices)
    return _value_at(axis, rng.random())


def value_near(axis: SearchAxis, value: Any, rng: random.Random, spread: float) -> Any:
    """Another value: of choices any other one, of a range one at a normal distance of `spread` times the range."""
    if axis.choices:
        others = [each for each in axis.choices if key_of({"": each}) != key_of({"": value})]
        return rng.choice(others or list(axis.choices))
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.log else (axis.low, axis.high)
    place = ((math.log(value) if axis.log else value) - low) / (high - low)
    moved_to = min(max(place + rng.gauss(0.0, spread), 0.0), 1.0)
    return _value_at(axis, moved_to)


def move_one(space: Sequence[SearchAxis], arm: Arm, rng: random.Random, spread: float) -> dict[str, Any]:
    """An arm that differs on one axis."""
    axis = rng.choice(list(space))
    value = arm.get(axis.path)
    inside = value is not None and (axis.choices or (isinstance(value, int | float) and value > 0))
    return {**arm, axis.path: value_near(axis, value, rng, spread) if inside else draw(axis, rng)}


def _value_at(axis: SearchAxis, place: float) -> Any:
    if axis.log:
        value = axis.low * (axis.high / axis.low) ** place
    else:
        value = axis.low + place * (axis.high - axis.low)
    if axis.type == "int":
        return min(max(round(value), round(axis.low)), round(axis.high))
    return min(max(float(f"{value:.{DIGITS}g}"), float(axis.low)), float(axis.high))
