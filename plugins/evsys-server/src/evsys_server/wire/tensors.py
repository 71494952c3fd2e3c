"""Arrays on the wire: one array (dense, or compressed sparse rows), and one field of many examples in a row.

Bytes are little-endian. Floating point is float32; int32 widens to int64 and bfloat16 to float32 when read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys_server.wire.fields import (
    WireError,
    content,
    fields,
    integer,
    integers,
    length_delimited,
    repeated_field,
    to_signed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Room", "batched_tensor", "buffer", "read_batched_tensor", "read_tensor", "tensor"]

_FLOAT32, _INT64, _INT32, _BFLOAT16 = 1, 2, 3, 4
_STORED = {_FLOAT32: "<f4", _INT64: "<i8", _INT32: "<i4", _BFLOAT16: "<u2"}

MOST_ELEMENTS = 1 << 25
MOST_PIECES = 1 << 18
MOST_AXES = 16


@attrs.define
class Room:
    """The remaining allowance of one request, since a few bytes could claim any size: `elements` of its sparse
    arrays together, and `pieces`, which are its examples, their arrays and the chunks of their tokens.
    """

    elements: int = MOST_ELEMENTS
    pieces: int = MOST_PIECES

    def take_piece(self) -> None:
        """Use up one piece.

        Raises:
            WireError: there is none left.
        """
        self.pieces -= 1
        if self.pieces < 0:
            raise WireError(
                f"a request may have {MOST_PIECES} examples and arrays together; send fewer at a time"
            )

    def take(self, shape: Sequence[int]) -> None:
        """Use up what an array of this shape has.

        Raises:
            WireError: there isn't so much left.
        """
        self.elements -= math.prod(shape)
        if self.elements < 0:
            raise WireError(
                f"the sparse tensors of a request may have {MOST_ELEMENTS} elements together, the shape {list(shape)} "
                "exceeds that; send fewer examples at a time"
            )


def read_tensor(message: memoryview, room: Room) -> NDArray[Any]:
    """An array, int64 or float32, in its shape.

    Args:
        message: the bytes.
        room: what the arrays of its request may still take.

    Raises:
        WireError: its bytes, its shape and its type contradict each other, or a sparse one is too large.
    """
    room.take_piece()
    dense: memoryview | None = None
    sparse: memoryview | None = None
    dtype, shape = 0, []
    for field, value in fields(message):
        if field == 1:
            dense = content(value)
        elif field == 2:
            sparse = content(value)
        elif field == 3:
            dtype = to_signed(value)
        elif field == 4:
            shape += repeated_field(value if isinstance(value, int) else value[: 10 * MOST_AXES])
            if len(shape) > MOST_AXES:
                raise WireError(f"a tensor has more than {MOST_AXES} axes")
    if any(size < 0 for size in shape):
        raise WireError(f"a tensor has the shape {shape}")
    if sparse is not None:
        return _from_sparse(sparse, dtype, shape, room)
    values = _values(dense if dense is not None else memoryview(b""), dtype)
    wanted = shape or [len(values)]
    if math.prod(wanted) != len(values):
        raise WireError(f"a tensor of the shape {wanted} has {len(values)} values")
    return values.reshape(wanted)


def _values(data: memoryview, dtype: int) -> NDArray[Any]:
    stored = _STORED.get(dtype)
    if stored is None:
        raise WireError(f"a tensor has the unknown type {dtype}")
    found = buffer(data, stored)
    if dtype == _BFLOAT16:  # the upper half of a float32
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found.astype(np.int64) if dtype == _INT32 else found


def buffer(data: memoryview, stored: str) -> NDArray[Any]:
    """Bytes as values of the type `stored`.

    Raises:
        WireError: so many bytes are not a whole number of them.
    """
    size = np.dtype(stored).itemsize
    if len(data) % size:
        raise WireError(f"a tensor has {len(data)} bytes, which are not values of {size} bytes")
    return np.frombuffer(data, dtype=stored)


def _from_sparse(message: memoryview, dtype: int, shape: Sequence[int], room: Room) -> NDArray[Any]:
    parts = {1: memoryview(b""), 2: memoryview(b""), 3: memoryview(b"")}
    for field, value in fields(message):
        if field in parts:
            parts[field] = content(value)
    values = _values(parts[1], dtype)
    starts, columns = buffer(parts[2], "<i8"), buffer(parts[3], "<i8")
    if len(shape) != 2:
        raise WireError(f"a sparse tensor has the shape {list(shape)}")
    rows, width = shape
    if (
        len(starts) != rows + 1
        or starts[0] != 0
        or starts[-1] != len(values)
        or len(columns) != len(values)
        or (np.diff(starts) < 0).any()
        or (len(columns) and not 0 <= columns.min() <= columns.max() < width)
    ):
        raise WireError("the indices of a sparse tensor contradict its shape")
    room.take(shape)
    found = np.zeros((rows, width), values.dtype)
    found[np.repeat(np.arange(rows), np.diff(starts)), columns] = values
    return found


def tensor(array: NDArray[Any]) -> bytes:
    """A dense array as a message: integers as int64, all else as float32."""
    dtype, stored = _storage_of(array)
    return b"".join(
        (length_delimited(1, stored.tobytes()), integer(3, dtype), integers(4, tuple(array.shape)))
    )


def batched_tensor(arrays: Sequence[NDArray[Any]]) -> bytes:
    """One field of many examples: their arrays one after the other, all of one shape behind the first axis."""
    trailing = arrays[0].shape[1:]
    pieces = [_storage_of(array) for array in arrays]
    data = b"".join(stored.tobytes() for _, stored in pieces)
    offsets = np.cumsum([0, *(stored.nbytes for _, stored in pieces)], dtype="<i8").tobytes()
    return b"".join(
        (
            length_delimited(1, data),
            length_delimited(2, offsets),
            integer(3, pieces[0][0]),
            integers(4, trailing),
        )
    )


def _storage_of(array: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    if np.issubdtype(array.dtype, np.integer):
        return _INT64, array.astype("<i8", copy=False)
    return _FLOAT32, array.astype("<f4", copy=False)


def read_batched_tensor(message: memoryview) -> list[NDArray[Any]]:
    """The arrays of a field of many examples.

    Raises:
        WireError: the offsets lead outside.
    """
    data = offsets = memoryview(b"")
    dtype, trailing = 0, []
    for field, value in fields(message):
        if field == 1:
            data = content(value)
        elif field == 2:
            offsets = content(value)
        elif field == 3:
            dtype = to_signed(value)
        elif field == 4:
            trailing += repeated_field(value)
    places = [int(place) for place in buffer(offsets, "<i8")]
    if any(not 0 <= start <= end <= len(data) for start, end in pairwise(places)):
        raise WireError("the offsets of a field lead outside its values")
    return [_values(data[start:end], dtype).reshape(-1, *trailing) for start, end in pairwise(places)]
