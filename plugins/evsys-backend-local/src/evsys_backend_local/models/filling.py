"""Copies arrays of a file into the engine's weights, checking each."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import DTypeLike

from evsys.errors import DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.memory import require_memory
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.families import require_supported_size


def allocate(shape: ModelShape, dtype: DTypeLike, source: str) -> BaseWeights:
    """Room for the weights.

    Raises:
        ModelTooLargeError: more parameters than a CPU trains.
        NotEnoughMemoryError: they don't fit into this machine.
    """
    require_supported_size(shape, source)
    require_memory(
        4 * shape.parameters,
        f"{source}: its {shape.parameters:,} weights in float32",
        hint="choose a smaller model, or free some memory",
    )
    return BaseWeights.allocate(shape, dtype)


def fill(weights: BaseWeights, read: Callable[[str], Array], source: str) -> BaseWeights:
    """Copy every array in.

    Raises:
        DataError: a shape doesn't fit, or a number isn't finite.
    """
    for name, view in weights.params.items():
        value = read(name)
        if value.shape != view.shape:
            raise DataError(f"{name} has shape {value.shape}, expected {view.shape}", source=source)
        view[...] = value
    try:
        weights.require_finite(source)
    except ValueError as error:
        raise DataError(str(error), hint="fetch or save the model again") from error
    return weights
