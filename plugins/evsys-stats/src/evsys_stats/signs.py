"""Random signs of the wild bootstrap, drawn once for all comparisons of an experiment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENUMERATE_UP_TO", "sign_products"]

ENUMERATE_UP_TO = 12
"""With this many clusters or fewer, all sign patterns are enumerated and the p-value is exact."""

_CHUNK = 2_000


def sign_products(columns: NDArray[np.float64], *, draws: int = 10_000, seed: int = 0) -> NDArray[np.float64]:
    """Multiply sign patterns [B, G] with `columns` [G, k]; they are the same for all who have G, `draws` and `seed` in common.

    Every pattern of signs is there once where G is small, else B = `draws` Rademacher patterns. The patterns are made and
    used in pieces, so that they never lie in memory as a whole.

    Returns:
        The products, [B, k].
    """
    total = columns.sum(axis=0)
    # A sign is 2b - 1 of a bit b, so one product with the bits is enough.
    pieces = [2.0 * (bits @ columns) - total for bits in _bits(len(columns), draws, seed)]
    return np.concatenate(pieces)


def _bits(groups: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    if groups <= ENUMERATE_UP_TO:
        patterns = np.arange(2**groups)[:, None] >> np.arange(groups)[None, :] & 1
        yield patterns.astype(np.float64)
        return
    rng = np.random.default_rng(seed)
    for start in range(0, draws, _CHUNK):
        rows = min(_CHUNK, draws - start)
        packed = np.frombuffer(rng.bytes(rows * -(-groups // 8)), dtype=np.uint8).reshape(rows, -1)
        yield np.unpackbits(packed, axis=1, count=groups).astype(np.float64)
