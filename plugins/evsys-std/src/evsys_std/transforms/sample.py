"""`sample`: some of the rows, drawn evenly, in their order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_std.transforms.columns import Row

__all__ = ["Sample"]


class Sample:
    """Draws `n` rows (all, if there are fewer), or each row with the probability `fraction`.

    `n` keeps a reservoir of n rows in memory; `fraction` keeps nothing.
    """

    name: ClassVar[str] = "sample"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"n": 3}}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `sample`."""

        n: int | None = option(None, "how many rows to draw", ge=1)
        fraction: float | None = option(None, "share of the rows to draw, above 0 and at most 1", gt=0, le=1)
        seed: int | None = option(None, "seed of the draws; by default derived from the run's seed")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.seed = self.config.seed
        self.dropped: Counter[str] = Counter()
        if (self.config.n is None) == (self.config.fraction is None):
            raise ValueError("give either `n` or `fraction`")

    @property
    def streaming(self) -> bool:
        """True by fraction: each row is drawn alone."""
        return self.config.fraction is not None

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        draw = random.Random(self.seed or 0)
        if self.config.n is not None:
            return self._reservoir(rows, draw, self.config.n)
        return self._share(rows, draw, self.config.fraction or 0.0)

    def _share(self, rows: Iterable[Row], draw: random.Random, fraction: float) -> Iterator[Row]:
        for row in rows:
            if draw.random() < fraction:
                yield row
            else:
                self.dropped["not drawn"] += 1

    def _reservoir(self, rows: Iterable[Row], draw: random.Random, size: int) -> Iterator[Row]:
        """Algorithm R (Vitter 1985): after each row, every row seen so far is kept with the same probability."""
        kept: list[tuple[int, Row]] = []
        for index, row in enumerate(rows):
            if index < size:
                kept.append((index, row))
                continue
            place = draw.randrange(index + 1)
            if place < size:
                kept[place] = (index, row)
            self.dropped["not drawn"] += 1
        kept.sort(key=lambda pair: pair[0])
        yield from (row for _, row in kept)
