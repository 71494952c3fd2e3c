"""The engine's operations by torch, on one of its devices. Nothing else in the engine knows of torch.

Sums whose terms meet at one place go by sorted runs, not by atomic additions, whose order differs from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from evsys_backend_local.engine import memory
from evsys_backend_local.engine.arrays import Array, Arrays

__all__ = ["torch_arrays"]

_TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}


def _type(dtype: DTypeLike) -> Any:
    return _TYPES[np.dtype(dtype).name]


def _run_lengths(starts: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    return np.diff(starts, append=total)


@cache
def torch_arrays(name: str | torch.device) -> Arrays:  # noqa: C901 - functions of one device
    """The table for a device, such as ``cpu`` or ``cuda:0``."""
    device = torch.device(name)
    on_gpu = device.type == "cuda"
    versions = {"torch": torch.__version__}
    if on_gpu:
        versions |= {"gpu": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}

    def put(x: Array) -> Any:
        return torch.tensor(np.ascontiguousarray(x).reshape(np.shape(x)), device=device)

    def host(x: Any) -> Array:
        array: Array = x.cpu().numpy()
        return array

    def take(x: Any, indices: Any, out: Any) -> Any:
        return torch.index_select(x, 0, indices, out=out)

    def sum_runs(x: Any, starts: NDArray[np.int64]) -> Any:
        return torch.segment_reduce(x, "sum", lengths=put(_run_lengths(starts, len(x))), axis=0)

    def add_at(x: Any, indices: NDArray[np.int64], values: Any) -> None:
        order = np.argsort(indices, kind="stable")
        rows, starts = np.unique(indices[order], return_index=True)
        x[put(rows)] += sum_runs(values[put(order)], starts)

    def free_bytes() -> int | None:
        if not on_gpu:
            return memory.available_bytes()
        # What torch holds in reserve is free for it as well.
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + reserve)

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize(device)

    def size(shape: int | Sequence[int]) -> tuple[int, ...]:
        return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)

    return Arrays(
        device=str(device),
        versions=versions,
        workers=1,  # torch shares each operation among its own threads, or the GPU's
        out_of_memory=torch.OutOfMemoryError,
        free_bytes=free_bytes,
        wait=wait,
        put=put,
        host=host,
        empty=lambda shape, dtype: torch.empty(size(shape), dtype=_type(dtype), device=device),
        zeros=lambda shape, dtype: torch.zeros(size(shape), dtype=_type(dtype), device=device),
        empty_like=torch.empty_like,
        zeros_like=torch.zeros_like,
        copy=torch.clone,
        matmul=torch.matmul,
        multiply=torch.multiply,
        divide=torch.divide,
        subtract=torch.subtract,
        maximum=torch.maximum,
        minimum=torch.minimum,
        clip=torch.clip,
        exp=torch.exp,
        log=torch.log,
        sqrt=torch.sqrt,
        reciprocal=torch.reciprocal,
        amax=torch.amax,
        einsum=torch.einsum,
        concatenate=torch.concatenate,
        take=take,
        permute=torch.permute,
        sum64=lambda x: x.sum(-1, dtype=torch.float64),
        cumsum64=lambda x: torch.cumsum(x, -1, dtype=torch.float64),
        order=lambda x: torch.argsort(x, stable=True),
        search=torch.searchsorted,
        below=lambda x: torch.nextafter(x, torch.zeros_like(x)),
        norm=lambda x: float(torch.sqrt(torch.dot(x, x))),
        norm64=lambda x: float(torch.linalg.vector_norm(x, dtype=torch.float64)),
        add_at=add_at,
        sum_runs=sum_runs,
    )
