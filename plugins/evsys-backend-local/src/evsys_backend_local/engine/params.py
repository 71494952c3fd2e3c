"""Named arrays that share one flat buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from evsys_backend_local.engine.arrays import NUMPY, Array, Arrays

Spec = tuple[str, tuple[int, ...]]


class FlatParams:
    """Arrays by name, all views of one one-dimensional buffer.

    One buffer makes the optimiser, the gradient sum, a copy and a comparison one call each, and lets
    neighbours be seen as one larger matrix (see :meth:`fused`).
    """

    def __init__(
        self, specs: Sequence[Spec], dtype: DTypeLike, *, zero: bool = False, xp: Arrays = NUMPY
    ) -> None:
        self.xp = xp
        self.dtype = np.dtype(dtype)
        self.specs: tuple[Spec, ...] = tuple(specs)
        sizes = [prod(shape) for _, shape in self.specs]
        self.flat: Array = (xp.zeros if zero else xp.empty)(sum(sizes), self.dtype)
        self._offsets: dict[str, int] = {}
        self._views: dict[str, Array] = {}
        offset = 0
        for (name, shape), size in zip(self.specs, sizes, strict=True):
            if name in self._views:
                raise ValueError(f"two arrays are called {name!r}")
            self._offsets[name] = offset
            self._views[name] = self.flat[offset : offset + size].reshape(shape)
            offset += size

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def items(self) -> Iterator[tuple[str, Array]]:
        """``(name, view)`` in storage order."""
        return iter(self._views.items())

    def fused(self, names: Sequence[str]) -> Array:
        """Adjacent matrices with equal columns (or adjacent vectors), seen as one: ``[sum of rows, columns]``."""
        first = self._offsets[names[0]]
        rows = 0
        offset = first
        for name in names:
            if self._offsets[name] != offset:
                raise ValueError(f"{name} does not follow its neighbours {names} in the buffer")
            rows += self._views[name].shape[0]
            offset += prod(self._views[name].shape)
        tail = self._views[names[0]].shape[1:]
        return self.flat[first:offset].reshape(rows, *tail)

    def like(self, *, zero: bool = True) -> FlatParams:
        """New arrays of the same names, shapes and type."""
        return FlatParams(self.specs, self.dtype, zero=zero, xp=self.xp)

    def on(self, xp: Arrays) -> FlatParams:
        """These where another table computes; the same object if that is this one's."""
        if xp is self.xp:
            return self
        moved = FlatParams(self.specs, self.dtype, xp=xp)
        for name, array in self.host_items():  # one by one: there may be no room for all of them twice
            moved[name][...] = xp.put(array)
        return moved

    @property
    def host(self) -> Array:
        """All numbers, as numpy's."""
        return self.xp.host(self.flat)

    def host_items(self) -> Iterator[tuple[str, Array]]:
        """``(name, array)`` in storage order, as numpy's: views where numpy computes, else copies."""
        return ((name, self.xp.host(view)) for name, view in self._views.items())

    def assign(self, values: Mapping[str, Array], *, what: str) -> None:
        """Copy numpy's ``values`` in; names and shapes must match exactly, else ``ValueError`` naming ``what``."""
        missing = sorted(set(self._views) - set(values))
        extra = sorted(set(values) - set(self._views))
        if missing or extra:
            raise ValueError(f"{what}: missing arrays {missing[:5]}, unexpected arrays {extra[:5]}")
        for name, view in self._views.items():
            value = values[name]
            if value.shape != view.shape:
                raise ValueError(f"{what}: {name} has shape {value.shape}, expected {view.shape}")
            view[...] = self.xp.put(value)
