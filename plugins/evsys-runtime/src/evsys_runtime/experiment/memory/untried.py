"""Values next to those of a winner that its sweep left out: beyond its edge, and in wide gaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from evsys_runtime.experiment.memory.on_record import positive

__all__ = ["untried"]

GAP = 4.0
"""Two values that are further apart than by this factor leave room for one between them."""

MOST_STEP = 4.0
"""The furthest step beyond an edge, as a factor."""


def untried(arms: Mapping[str, Mapping[str, str]], winner: str) -> Iterator[tuple[str, float, str]]:
    """Paths with a value to try there, and why.

    Only keys are looked at of which the sweep tried other numbers with everything else the same.

    Args:
        arms: the configs of the arms of the winner's experiment, by name, values as JSON texts.
        winner: its name.
    """
    if winner not in arms:
        return
    own = arms[winner]
    tried: dict[str, set[float]] = {}
    for config in arms.values():
        differing = [path for path in own.keys() | config.keys() if own.get(path) != config.get(path)]
        if len(differing) == 1:
            value = positive(config.get(differing[0]))
            if value is not None:
                tried.setdefault(differing[0], set()).add(value)
    for path, values in sorted(tried.items()):
        best = positive(own.get(path))
        if best is None:
            continue
        whole = all(text.isdecimal() for text in (str(config.get(path)) for config in arms.values()))
        for value, why in _around(best, values):
            rounded = float(round(value)) if whole else float(f"{value:.2g}")
            if rounded > 0 and rounded not in {*values, best}:
                yield path, int(rounded) if whole else rounded, why


def _around(best: float, others: set[float]) -> Iterator[tuple[float, str]]:
    below = [value for value in others if value < best]
    above = [value for value in others if value > best]
    if below and not above:
        step = min(best / max(below), MOST_STEP)
        yield best * step, f"the best of those tried, {best:g}, is the largest"
    if above and not below:
        step = min(min(above) / best, MOST_STEP)
        yield best / step, f"the best of those tried, {best:g}, is the smallest"
    for near in (max(below, default=None), min(above, default=None)):
        if near is not None and max(near, best) / min(near, best) >= GAP:
            yield (
                math.sqrt(near * best),
                f"nothing was tried between {min(near, best):g} and {max(near, best):g}",
            )
