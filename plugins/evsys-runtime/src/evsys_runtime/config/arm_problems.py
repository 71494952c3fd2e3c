"""Problems of arms: each once, where its value came from, with the arms that have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evsys.errors import Problem
from evsys_runtime.config.arm_tree import ArmTree

__all__ = ["ArmProblems"]


class ArmProblems:
    """Collects what is wrong with arms, one after another."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[str | None, dict[str, None]]] = {}
        self._places: set[str] = set()

    def look_at(self, arm: ArmTree) -> None:
        """Note which values of which axes there are, whether or not something is wrong with them."""
        self._places.update([place for _, place in arm.origins.axes])

    def add(self, arm: ArmTree, problem: Problem) -> None:
        """A problem whose path begins at the run."""
        key = (arm.origins.locate(problem.path), problem.message)
        self._found.setdefault(key, (problem.hint, {}))[1][arm.name] = None

    def placed(self, total: int | None) -> Iterator[tuple[Problem, str]]:
        """Each problem with its path in the file, and words for how many of `total` arms have it; no words for None.

        What is wrong with each value of an axis alike is wrong with the axis.
        """
        of_axis: dict[str, set[str]] = {}
        for place in self._places if self._found else ():
            of_axis.setdefault(place.rpartition("[")[0], set()).add(place)
        folded: dict[tuple[str, str], tuple[str | None, dict[str, None]]] = {}
        for (place, message), (hint, names) in self._found.items():
            axis = place.rpartition("[")[0]
            values = of_axis.get(axis, ())
            alike = len(values) > 1 and all((value, message) in self._found for value in values)
            folded.setdefault((axis if alike else place, message), (hint, {}))[1].update(names)
        for (place, message), (hint, names) in folded.items():
            words = "" if total is None else _count(list(names), total)
            yield Problem(path=place, message=message, hint=hint), words


def _count(names: Sequence[str], total: int) -> str:
    """How many arms a problem is in, where there are several."""
    if total == 1:
        return ""
    if len(names) == total:
        return f" (in all {total} arms)"
    if len(names) == 1:
        return f" (in the arm {names[0]!r})"
    return f" (in {len(names)} of {total} arms, the first is {names[0]!r})"
