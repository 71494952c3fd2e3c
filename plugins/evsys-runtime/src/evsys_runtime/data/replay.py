"""Rows of earlier datasets between those of a run's own."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import DataError
from evsys_runtime.data.json_rows import decode_row, encode_row
from evsys_runtime.data.lineage import derive_seed
from evsys_runtime.data.scope import current_scope
from evsys_runtime.data.spool import LineStore

__all__ = ["Earlier", "Replay"]


@attrs.define(kw_only=True, eq=False)
class Earlier:
    """A dataset that rows are drawn from: its `rows`, to be read once, and where they came from.

    `taken` counts the rows drawn, those drawn again among them.
    """

    source: str
    lineage: Mapping[str, Any]
    rows: Iterable[Mapping[str, Any]]
    taken: int = 0


@attrs.frozen(kw_only=True, eq=False)
class Replay:
    """Puts `ratio` rows of earlier datasets behind each of a run's own, so many in all that nothing is left to chance.

    The datasets take turns. Each gives its rows in an order drawn from `seed`; where all were given, in another one. They wait
    in memory while they are few, in a file once they are many.
    """

    ratio: float
    earlier: Sequence[Earlier]
    seed: int

    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The rows with the others between them.

        Raises:
            DataError: an earlier dataset has no rows.
        """
        stores: list[LineStore] = []
        try:
            for earlier in self.earlier:
                stores.append(_store_rows(earlier))
            feeds = [self._endless(place, store) for place, store in enumerate(stores)]
            given = 0
            for number, row in enumerate(rows, 1):
                yield row
                while given < int(self.ratio * number + 1e-9):
                    place = given % len(feeds)
                    given += 1
                    self.earlier[place].taken += 1
                    yield next(feeds[place])
        finally:
            for store in stores:
                store.close()

    @property
    def lineage(self) -> Mapping[str, Any]:
        """How the record keeps it, once the rows were read."""
        drawn = [{**each.lineage, "drawn": each.taken} for each in self.earlier]
        return {"replay": self.ratio, "seed": self.seed, "from": drawn}

    def _endless(self, place: int, store: LineStore) -> Iterator[Mapping[str, Any]]:
        """All rows in one order after another."""
        epoch = 0
        while True:
            order = array("Q", range(len(store)))
            # How many there are to draw from is part of the seed: other rows of a dataset come at each stage.
            random.Random(derive_seed(self.seed, f"replay {len(self.earlier)} {place}", epoch)).shuffle(order)
            for line in store.in_order(order):
                yield decode_row(line.rstrip(b"\n"))
            epoch += 1


def _store_rows(earlier: Earlier) -> LineStore:
    store = LineStore(current_scope().spool_dir)
    try:
        for index, row in enumerate(earlier.rows):
            store.append(encode_row(row, what=f"row {index}"))
        store.seal()
    except Exception:
        store.close()
        raise
    if not len(store):
        raise DataError("holds no rows to replay", source=earlier.source or None)
    return store
