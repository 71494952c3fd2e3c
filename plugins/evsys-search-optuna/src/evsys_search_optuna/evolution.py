"""The sampler `cmaes`: an evolution strategy, played again from the history each time it is asked.

Optuna's own sampler of that name keeps its state with the trials of a study. Here the underlying package replays
the history from the first arm on, with one seed: the same history gives the same state.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from evsys.types import SearchAxis
from evsys_search_optuna.values import is_number, key_of, rounded

__all__ = ["next_arm", "unfit"]

SIGMA = 1 / 6
"""The first step size, as a share of each axis."""

ALIKE = 1_000
"""So many points in a row whose arms were all tried mean that it has come to its end."""

type Entry = Mapping[str, Any]


def unfit(space: Sequence[SearchAxis]) -> Iterator[str]:
    """Why it can't choose from a space."""
    if find_spec("cmaes") is None:
        yield "the sampler 'cmaes' needs the package `cmaes`: pip install 'evsys-search-optuna[cmaes]'"
    for axis in space:
        if axis.choices:
            yield f"the sampler 'cmaes' takes ranges, and {axis.path!r} is a list; use 'tpe', or give it low and high"
        if axis.when:
            yield f"the sampler 'cmaes' takes no axis with a condition, as {axis.path!r} has one; use 'tpe'"
    if len(space) == 1:
        yield "the sampler 'cmaes' takes two axes or more, and there is one; use 'tpe'"


def next_arm(
    history: Sequence[Entry], space: Sequence[SearchAxis], *, seed: int, population: int | None
) -> list[dict[str, Any]]:
    """The next arm; none where it has to wait for the last ones of a generation, or has come to its end.

    A point whose arm was tried takes that arm's score instead of being tried again. Arms without a score are the worst of their
    generation. Arms that the strategy didn't propose, those of a referee, have no part in it.
    """
    strategy = _strategy(len(space), seed, population)
    own = [(index, entry) for index, entry in enumerate(history) if entry.get("by") != "referee"]
    first: dict[str, int] = {}
    for index, entry in enumerate(history):
        first.setdefault(key_of(entry["values"]), index)
    generation: list[tuple[Any, Entry]] = []
    alike = 0
    while alike < ALIKE:
        point = strategy.ask()
        arm = {axis.path: _value(axis, float(place)) for axis, place in zip(space, point, strict=True)}
        at = first.get(key_of(arm), len(history))
        tried = at < (own[0][0] if own else len(history))
        alike = alike + 1 if tried else 0
        if tried:
            generation.append((point, history[at]))
        elif own:
            _, entry = own.pop(0)
            generation.append((point if entry["values"] == arm else _point(entry, space, point), entry))
        else:
            return [arm]
        if len(generation) < strategy.population_size:
            continue
        if not own and any(entry["status"] == "running" for _, entry in generation):
            return []
        strategy.tell(_ranked(generation))
        generation = []
        if strategy.should_stop():
            return []
    return []


def _strategy(axes: int, seed: int, population: int | None) -> Any:
    import cmaes
    import numpy as np

    return cmaes.CMA(
        mean=np.full(axes, 0.5),
        sigma=SIGMA,
        bounds=np.tile([0.0, 1.0], (axes, 1)),
        seed=random.Random(f"cmaes/{seed}").getrandbits(32),
        population_size=population,
    )


def _ranked(generation: Sequence[tuple[Any, Entry]]) -> list[tuple[Any, float]]:
    """Points with what is to be made small; only its order counts."""
    worst = max((-entry["score"] for _, entry in generation if is_number(entry["score"])), default=0.0) + 1.0
    return [
        (point, -float(entry["score"]) if is_number(entry["score"]) else worst) for point, entry in generation
    ]


def _value(axis: SearchAxis, place: float) -> Any:
    """The value at a place from 0 to 1; each integer has its share."""
    if axis.type == "int":
        low, high = round(axis.low), round(axis.high)
        return min(max(math.floor(_between(low, high + 1, place, log=axis.log)), low), high)
    return rounded(axis, _between(axis.low, axis.high, place, log=axis.log))


def _between(low: float, high: float, place: float, *, log: bool) -> float:
    return low * (high / low) ** place if log else low + place * (high - low)


def _point(entry: Entry, space: Sequence[SearchAxis], asked: Any) -> Any:
    """The point of an arm that differs slightly from the proposed one, since it was proposed on another machine."""
    import numpy as np

    values = entry["values"]
    if any(axis.path not in values for axis in space):
        return asked
    return np.array([_place(axis, values[axis.path]) for axis in space])


def _place(axis: SearchAxis, value: float) -> float:
    low, high = float(axis.low), float(axis.high)
    if axis.type == "int":
        value, high = value + 0.5, high + 1
    place = math.log(value / low) / math.log(high / low) if axis.log else (value - low) / (high - low)
    return min(max(place, 0.0), 1.0)
