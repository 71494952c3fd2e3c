"""How many arms of an experiment run at once: what the file says, else what the backends suggest."""

from __future__ import annotations

from collections.abc import Sequence

from evsys.optional import declared
from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.arms import Arms
from evsys_runtime.config.model import RunConfig
from evsys_runtime.config.reading import Reader

__all__ = ["DEFAULT_WIDTH", "side_by_side"]

DEFAULT_WIDTH = 4
"""Arms at once on a backend that can have several and suggests no number of its own."""


MANY = 1_000
"""Arms of a search, whose number doesn't matter here."""


def side_by_side(
    said: int | None,
    planned: int | None,
    arms: Sequence[tuple[ArmTree, RunConfig | None]],
    reader: Reader,
    checks: Arms,
    *,
    in_turn: bool = False,
) -> int:
    """Arms at once, at most as many as there are; with several backends the smallest number that one of them
    suggests.

    Args:
        said: `max_concurrent_arms` of the file.
        planned: how many runs don't wait for another one; None if their number isn't known.
        arms: the arms, those with problems without a run.
        reader: gets a problem if the file asks for more than a backend can have.
        checks: has the backends.
        in_turn: later arms depend on which of them ended before, and a rerun has to be the same.
    """
    built = [(run.backend.kind, checks.backend(arm.tree)) for arm, run in arms if run is not None]
    backends = {kind: backend for kind, backend in built if backend is not None}
    planned = MANY if planned is None else max(1, planned)
    if said is None and in_turn:
        return 1
    if said is None:
        return min(planned, *map(_suggested_concurrency, backends.values()), DEFAULT_WIDTH)
    alone = [kind for kind, backend in backends.items() if not _shares(backend)]
    if alone and said > 1 and planned > 1:
        message = f"backend {alone[0]!r} doesn't declare support for several runs at once"
        reader.add("$.max_concurrent_arms", message, "write 1, or leave it out")
    return min(planned, said)


def _suggested_concurrency(backend: object) -> int:
    """The `concurrent_arms` that a backend suggests; 1 if it doesn't declare `concurrent_runs`."""
    width = declared(backend, "concurrent_arms", DEFAULT_WIDTH)
    return max(1, width) if _shares(backend) and isinstance(width, int) else 1


def _shares(backend: object) -> bool:
    return "concurrent_runs" in (getattr(backend, "capabilities", None) or ())
