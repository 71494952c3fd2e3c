"""A search proposes arms from what was tried. Its state is a function of the history that it is given, so that a search that was
interrupted goes on where it was.

## In an experiment file

The key is `search`; a `matrix` tries all combinations.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys import option, register_search


@register_search("halving")
class Halving:
    """Halves a learning rate until that is worse."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `halving`."""

        start: float = option(1e-2, "The first learning rate.", gt=0)

    def __init__(self, start: float) -> None:
        self.start = start

    def ask(self, history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        if len(history) > 1 and history[-1]["value"] <= history[-2]["value"]:
            return []
        return [{"algorithm.params.learning_rate": self.start / 2 ** len(history)}]
