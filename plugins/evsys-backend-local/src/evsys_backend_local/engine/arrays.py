"""The arrays of the engine: numpy's, or another library's.

Every module of the engine is written once, over one table of operations; :data:`NUMPY` holds numpy's own functions,
so that a call costs nothing more there. `torch_arrays` has the table of torch. An array of either is used by what
both have in common: slices, indexing with integer arrays of the same library, arithmetic (also in place), ``@``,
``.T`` of a matrix, ``shape``, ``len``, ``reshape``, ``swapaxes``, ``sum`` and ``argmax``. Annotations call all of
them numpy's.

Packing, drawing of seeds, the loss, and files are numpy's in any case: `put` and `host` convert between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine import memory

__all__ = ["NUMPY", "Array", "Arrays"]

Array = NDArray[Any]


@attrs.frozen(kw_only=True, eq=False)
class Arrays:
    """A table of operations, named as in numpy where numpy has them. Types of elements are numpy's for all tables.

    Attributes:
        device: its name, for the record.
        versions: of the library, for the record.
        workers: threads that share a batch, by default; None is one a CPU.
        out_of_memory: the exception raised without memory.
        free_bytes: memory left; None if unknown.
        wait: return when all pending work is computed.
        put: a numpy array as one of this table.
        host: an array of this table as numpy's.
        empty: ``(shape, dtype)``.
        zeros: ``(shape, dtype)``.
        copy: an array of its own.
        take: ``(x, indices, out=)`` of rows.
        permute: ``(x, axes)``.
        sum64: sum over the last axis, in float64.
        cumsum64: cumulative sum over the last axis, in float64.
        order: indices that sort a vector ascending, equal ones in their order.
        search: where a number would be inserted into an ascending vector, before equal ones.
        below: for each number above 0 the largest below it.
        norm: L2 norm of a vector by its elements' type, whose squares may overflow.
        norm64: the same in float64.
        add_at: ``(x, indices, values)``: ``x[i] += values`` along the first axis for numpy's ``indices``, which may
            repeat.
        sum_runs: ``(x, starts)``: sums of the rows ``[starts[i], starts[i + 1])``, for numpy's ``starts``.
    """

    device: str
    versions: dict[str, str]
    workers: int | None
    out_of_memory: type[Exception]
    free_bytes: Callable[[], int | None]
    wait: Callable[[], None]
    put: Callable[[Array], Array]
    host: Callable[[Array], Array]
    empty: Callable[..., Array]
    zeros: Callable[..., Array]
    empty_like: Callable[[Array], Array]
    zeros_like: Callable[[Array], Array]
    copy: Callable[[Array], Array]
    matmul: Callable[..., Array]
    multiply: Callable[..., Array]
    divide: Callable[..., Array]
    subtract: Callable[..., Array]
    maximum: Callable[..., Array]
    minimum: Callable[..., Array]
    clip: Callable[..., Array]
    exp: Callable[..., Array]
    log: Callable[..., Array]
    sqrt: Callable[..., Array]
    reciprocal: Callable[..., Array]
    amax: Callable[..., Array]
    einsum: Callable[..., Array]
    concatenate: Callable[..., Array]
    take: Callable[..., Array]
    permute: Callable[..., Array]
    sum64: Callable[[Array], Array]
    cumsum64: Callable[[Array], Array]
    order: Callable[[Array], Array]
    search: Callable[[Array, Any], Any]
    below: Callable[[Array], Array]
    norm: Callable[[Array], float]
    norm64: Callable[[Array], float]
    add_at: Callable[[Array, NDArray[np.int64], Array], None]
    sum_runs: Callable[[Array, NDArray[np.int64]], Array]


def _free_bytes() -> int | None:
    return memory.available_bytes()


def _same(x: Array) -> Array:
    return x


def _take(x: Array, indices: Array, out: Array) -> Array:
    return np.take(x, indices, axis=0, out=out)


def _norm(x: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.dot(x, x)))


NUMPY = Arrays(
    device="cpu",
    versions={},  # of numpy the BLAS's description tells
    workers=None,
    out_of_memory=MemoryError,
    free_bytes=_free_bytes,
    wait=lambda: None,
    put=_same,
    host=_same,
    empty=np.empty,
    zeros=np.zeros,
    empty_like=np.empty_like,
    zeros_like=np.zeros_like,
    copy=lambda x: x.copy(),
    matmul=np.matmul,
    multiply=np.multiply,
    divide=np.divide,
    subtract=np.subtract,
    maximum=np.maximum,
    minimum=np.minimum,
    clip=np.clip,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    reciprocal=np.reciprocal,
    amax=np.maximum.reduce,
    einsum=np.einsum,
    concatenate=np.concatenate,
    take=_take,
    permute=np.transpose,
    sum64=lambda x: x.sum(axis=-1, dtype=np.float64),
    cumsum64=lambda x: np.cumsum(x, axis=-1, dtype=np.float64),
    order=lambda x: np.argsort(x, kind="stable"),
    search=np.searchsorted,
    below=lambda x: np.nextafter(x, 0),
    norm=_norm,
    norm64=lambda x: float(np.linalg.norm(x.astype(np.float64))),
    add_at=np.add.at,
    sum_runs=lambda x, starts: np.add.reduceat(x, starts, axis=0),
)
