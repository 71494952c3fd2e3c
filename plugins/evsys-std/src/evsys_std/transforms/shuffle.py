"""`shuffle`: another order, the same for the same seed."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_runtime import current_scope
from evsys_runtime.data.json_rows import decode_row, encode_row
from evsys_runtime.data.spool import LineStore
from evsys_std.transforms.columns import Row

__all__ = ["Shuffle", "permutation", "store_rows"]


class Shuffle:
    """Puts all rows into a random order.

    Few rows wait in memory; many wait in a file alongside the dataset, and memory holds two numbers a row: its place in
    the file and its place in the order, sixteen bytes.
    """

    name: ClassVar[str] = "shuffle"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `shuffle`."""

        seed: int | None = option(None, "what the order is drawn from; without it, from the run's seed")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.seed = self.config.seed

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        store = store_rows(rows)
        try:
            for line in store.in_order(permutation(len(store), self.seed or 0)):
                yield decode_row(line.rstrip(b"\n"))
        finally:
            store.close()


def store_rows(rows: Iterable[Row]) -> LineStore:
    """All rows as lines, in memory while they are few."""
    store = LineStore(current_scope().spool_dir)
    try:
        for index, row in enumerate(rows):
            store.append(encode_row(row, what=f"row {index}"))
        store.seal()
    except Exception:
        store.close()
        raise
    return store


def permutation(count: int, seed: int) -> array[int]:
    """The numbers below `count` in an order drawn from `seed`."""
    order = array("Q", range(count))
    random.Random(seed).shuffle(order)
    return order
