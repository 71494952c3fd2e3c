"""One precision for what a loss is given, wherever the model trains: float32, which is what goes over the wire.

Else a run on a server would train on other numbers than the same run in process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["in_float32"]


def in_float32(datum: Datum) -> Datum:
    """The datum with float32 in place of wider floats; itself where it has none."""
    wide = {name: values for name, values in datum.loss_inputs.items() if _is_wide(values)}
    if not wide:
        return datum
    narrow = {name: values.astype(np.float32) for name, values in wide.items()}
    return attrs.evolve(datum, loss_inputs={**datum.loss_inputs, **narrow})


def _is_wide(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and values.dtype.itemsize > np.dtype(np.float32).itemsize
