"""Values next to those of a winner that no one tried: beyond the edge of what was, and in wide gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import attrs

from evsys_runtime.experiment.insight.arm_index import positive
from evsys_runtime.experiment.insight.failures import lies_in, meets
from evsys_runtime.experiment.insight.results import Region

__all__ = ["Neighbour", "TriedArm", "untried_neighbours"]

GAP = 4.0
"""Two values further apart than by this factor leave room for one between them."""

MOST_STEP = 4.0
"""The furthest step beyond an edge, as a factor."""

MOST_TOWARDS = 10.0
"""The furthest step towards a value that failed: a gap of twenty powers of ten isn't looked into a third of the way."""

NEARER = 1 / 3
"""How far from the winner towards a value that failed the next one lies, by ratio: where it completes it says more than another failure."""


@attrs.frozen(kw_only=True)
class TriedArm:
    """An arm on record, by its values as JSON texts; it `failed` where no run with its config completed and some ended badly.

    With one that is `beside` the winner, in its experiment, the winner was compared.
    """

    config: Mapping[str, str]
    failed: bool = False
    beside: bool = True


@attrs.frozen(kw_only=True)
class Neighbour:
    """A value to try at a path, and why."""

    path: str
    value: float
    why: str


def untried_neighbours(
    winner: Mapping[str, str], tried: Iterable[TriedArm], known_bad: Iterable[Region] = ()
) -> Iterator[Neighbour]:
    """The values to try next to a winner, one changed at a time. Only keys are considered of which its experiment
    tried other numbers with everything else the same.

    Args:
        winner: its values as JSON texts.
        tried: arms on record; those that differ from it in one number count, and those alongside it with the values
            they tried while other numbers differed as well. Values of other experiments aren't tried again, though
            it isn't known which is better.
        known_bad: regions of failures; no returned value lies in one.
    """
    there: dict[str, dict[float, bool]] = {}
    swept: dict[str, set[float]] = {}
    texts: dict[str, set[str]] = {}
    arms = [(arm, _differing(winner, arm.config)) for arm in tried]
    for arm, differing in arms:
        value = positive(arm.config.get(differing[0])) if len(differing) == 1 else None
        if value is not None:
            there.setdefault(differing[0], {})[value] = arm.failed
            if arm.beside:
                swept.setdefault(differing[0], set()).add(value)
            texts.setdefault(differing[0], {winner.get(differing[0], "")}).add(arm.config[differing[0]])
    regions = list(known_bad)
    for path, own in sorted(swept.items()):
        best, values = positive(winner.get(path)), {**_other_values(winner, arms, path), **there[path]}
        if best is None:
            continue
        whole = all(text.isdecimal() for text in texts[path])
        others = {**values, **dict.fromkeys(_edges(winner, path, regions), True)}
        for value, why in _neighbouring_values(best, others, own):
            rounded = round(value) if whole else float(f"{value:.2g}")
            config = {**winner, path: repr(rounded)}
            inside = any(lies_in(config, region) for region in regions)
            if rounded > 0 and rounded not in {*values, best} and not inside:
                yield Neighbour(path=path, value=rounded, why=why)


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [path for path in one.keys() | other.keys() if one.get(path) != other.get(path)]


def _other_values(
    winner: Mapping[str, str], tried: Iterable[tuple[TriedArm, Sequence[str]]], path: str
) -> dict[float, bool]:
    """Values that arms alongside the winner had which differ from it in other numbers as well, as those of a search do: the sweep went there.

    Each arm comes with the paths at which it differs from the winner.
    """
    found: dict[float, bool] = {}
    for arm, differing in tried:
        numbers = all(positive(config.get(key)) for config in (winner, arm.config) for key in differing)
        value = positive(arm.config.get(path))
        if arm.beside and numbers and value is not None and path in differing:
            found[value] = found.get(value, True) and arm.failed
    return found


def _edges(winner: Mapping[str, str], path: str, regions: Iterable[Region]) -> Iterator[float]:
    """The values at which the winner would enter a region by this path alone: the nearest values that failed there."""
    for region in regions:
        own = [condition for condition in region.conditions if condition.path == path]
        others = [condition for condition in region.conditions if condition.path != path]
        if own and all(meets(winner, condition) for condition in others):
            yield from (edge for one in own if (edge := positive(one.value)) is not None)


def _neighbouring_values(
    best: float, others: Mapping[float, bool], swept: Set[float]
) -> Iterator[tuple[float, str]]:
    """Values to try around the best of a sweep, with all tried ones and whether they failed."""
    below = [value for value in others if value < best]
    above = [value for value in others if value > best]
    if below and not above and min(swept) < best:
        step = min(best / max(below), MOST_STEP)
        yield best * step, f"the best of its sweep, {best:g}, is the largest value tried"
    if above and not below and max(swept) > best:
        step = min(min(above) / best, MOST_STEP)
        yield best / step, f"the best of its sweep, {best:g}, is the smallest value tried"
    for near in (max(below, default=None), min(above, default=None)):
        if near is None or max(near, best) <= min(near, best) * GAP * (1 + 1e-9):
            continue
        between = f"nothing was tried between {min(near, best):g} and {max(near, best):g}"
        if others[near]:
            step = min(max((near / best) ** NEARER, 1.0 / MOST_TOWARDS), MOST_TOWARDS)
            yield best * step, f"{between}, and {near:g} failed"
        else:
            yield math.sqrt(near * best), between
