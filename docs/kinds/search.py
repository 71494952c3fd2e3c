"""A search proposes arms from earlier results. Its state is a function of the history, so an interrupted search resumes
where it left off. It chooses from the axes of the file's matrix, which it gets as `SearchAxis`.

## In an experiment file

The key is `search`, next to a `matrix`: [search](../search.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys import option, register_search
from evsys.types import SearchAxis


@register_search("halving")
class Halving:
    """Halves the value on the first axis that is a range, for as long as that is better."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `halving`."""

        start: float = option(1.0, "Where to begin, as a part of the highest value.", gt=0, le=1)

    def __init__(self, start: float) -> None:
        self.start = start

    def ask(
        self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]
    ) -> list[Mapping[str, Any]]:
        halved = next((axis for axis in space if not axis.choices), None)
        if halved is None or any(entry["status"] == "running" for entry in history):
            return []
        scores = [entry["score"] for entry in history if entry["score"] is not None]
        if len(scores) < len(history) or (len(scores) > 1 and scores[-1] <= scores[-2]):
            return []
        value = halved.high * self.start / 2 ** len(history)
        if value < halved.low:
            return []
        arm: dict[str, Any] = {}
        for axis in space:
            if axis.applies(arm):
                arm[axis.path] = axis.choices[0] if axis.choices else axis.high
        return [{**arm, halved.path: round(value) if halved.type == "int" else value}]
