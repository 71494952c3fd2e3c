"""`evsys/tiny`: the base model that ships inside the wheel.

771,584 parameters, byte-level, pre-trained on string operations in a chat format by `scripts/train_tiny.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from evsys.errors import DataError
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.safetensors import SafetensorsFile
from evsys_backend_local.tiny.shape import SHAPE

WEIGHTS = Path(__file__).with_name("model.safetensors")


def load_tiny(dtype: DTypeLike = np.float32) -> BaseWeights:
    """The weights, widened from the float16 that the file holds.

    Raises:
        DataError: the installed file is missing or damaged.
    """
    weights = BaseWeights.allocate(SHAPE, dtype)
    try:
        file = SafetensorsFile(WEIGHTS)
        weights.params.assign({name: file[name] for name in file}, what=str(WEIGHTS))
        weights.require_finite(str(WEIGHTS))
    except (OSError, ValueError) as error:
        raise DataError(
            f"the model inside the package is damaged: {error}", hint="reinstall evsys-backend-local"
        ) from error
    return weights
