"""The table of functions for an array: numpy's, or torch's where a GPU computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from evsys_backend_local.engine.arrays import NUMPY, Arrays

__all__ = ["arrays_of"]


def arrays_of(x: Any) -> Arrays:
    """The table whose array this is."""
    if isinstance(x, np.ndarray):
        return NUMPY
    from evsys_backend_local.engine.torch_arrays import torch_arrays

    return torch_arrays(x.device)
