"""The order in which rows are trained: one seeded permutation an epoch, and names for batches.

The row at a position is a function of the position alone, so a resumed run needs nothing but a number to continue
with exactly the rows that an uninterrupted run would take.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DataOrder", "batch_id"]


class DataOrder:
    """An endless sequence of row numbers: every epoch has each of `rows` once, in an order of its own.

    Args:
        rows: how many rows there are, at least one.
        seed_of_epoch: gives the seed of each epoch's permutation.
    """

    def __init__(self, rows: int, seed_of_epoch: Callable[[int], int]) -> None:
        if rows < 1:
            raise ValueError("there are no rows to put in order")
        self.rows = rows
        self._seed_of_epoch = seed_of_epoch
        self._epochs: dict[int, NDArray[np.int64]] = {}

    def take(self, position: int, count: int) -> list[int]:
        """Row numbers at `position` to `position + count - 1`, across the ends of epochs where it comes to that."""
        found: list[int] = []
        while len(found) < count:
            epoch, offset = divmod(position + len(found), self.rows)
            found += self._epoch(epoch)[offset : offset + count - len(found)].tolist()
        return found

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._epochs:
            import numpy as np

            order = np.random.default_rng(self._seed_of_epoch(epoch)).permutation(self.rows)
            self._epochs = {other: kept for other, kept in self._epochs.items() if other == epoch - 1}
            self._epochs[epoch] = order
        return self._epochs[epoch]


def batch_id(row_ids: Sequence[str]) -> str:
    """The name of a batch: a hash of its rows' ids in their order."""
    return hashlib.sha256(json.dumps(list(row_ids)).encode()).hexdigest()[:16]
