"""The arms that an experiment file expands to."""

from __future__ import annotations

import attrs

from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.space import Space

__all__ = ["Expansion"]


@attrs.frozen(kw_only=True, eq=False)
class Expansion:
    """The arms of a file. If they aren't `whole`, something is wrong with how they are given: what is found in them is
    true, but others may be missing, and their names mean nothing. `unknown` are the paths in a run (`$` is the run) that
    axes would set which can't be used. With a search they are those to look at beforehand, and `space` is what it chooses from.
    """

    arms: list[ArmTree] = attrs.field(factory=list)
    whole: bool = True
    unknown: frozenset[str] = frozenset()
    space: Space | None = None
