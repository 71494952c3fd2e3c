"""Reused memory: buffers by name that grow and are kept while a worker lives."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import DTypeLike

from evsys_backend_local.engine.arrays import NUMPY, Array, Arrays


class Workspace:
    """Scratch arrays of one worker.

    ``take`` returns the same memory for the same key, so a caller must be done with the old contents.
    Fresh large arrays would be mapped and zeroed by the kernel on each use, which costs as much as a
    matrix product of the same size.
    """

    def __init__(self, dtype: DTypeLike, xp: Arrays = NUMPY) -> None:
        self.xp = xp
        self.dtype = np.dtype(dtype)
        self._buffers: dict[object, Array] = {}
        self._children: list[Workspace] = []

    def child(self, index: int) -> Workspace:
        """Further workspace of the same worker, for a pass that must outlive the next one."""
        while len(self._children) <= index:
            self._children.append(Workspace(self.dtype, self.xp))
        return self._children[index]

    def release(self) -> None:
        """Give all memory back."""
        self._buffers.clear()
        self._children.clear()

    def take(self, key: object, *shape: int) -> Array:
        """Contiguous uninitialised array of ``shape`` under ``key``."""
        size = prod(shape)
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < size:
            buffer = self.xp.empty(size, self.dtype)
            self._buffers[key] = buffer
        return buffer[:size].reshape(shape)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = sum(buffer.nbytes for buffer in self._buffers.values())
        return own + sum(child.nbytes for child in self._children)
