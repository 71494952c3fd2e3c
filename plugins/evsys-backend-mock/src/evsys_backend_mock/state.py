"""Saving and restoring the mock's weights and optimiser, bit for bit."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys_backend_mock.adam import AdamState
from evsys_backend_mock.model import LowRankModel

__all__ = ["FILE", "Saved", "read_state", "write_state"]

FILE = "mock.npz"
_FORMAT = 1


@attrs.frozen(kw_only=True, eq=False)
class Saved:
    """What a file holds: the two matrices and the optimiser."""

    weights: Mapping[str, Any]
    optimizer: AdamState


def write_state(directory: Path, model: LowRankModel, optimizer: AdamState) -> dict[str, Any]:
    """Write `mock.npz` and say so, as JSON values."""
    weights = {"A": model.A, "B": model.B}
    arrays = {
        **{f"weight.{name}": matrix for name, matrix in weights.items()},
        **{f"first.{name}": matrix for name, matrix in optimizer.first.items()},
        **{f"second.{name}": matrix for name, matrix in optimizer.second.items()},
        "counts": np.array([_FORMAT, optimizer.step]),
    }
    with (directory / FILE).open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    return {"backend": "mock", "file": FILE}


def read_state(path: Path, model: LowRankModel) -> Saved:
    """Read a file for a model of this shape.

    Raises:
        BackendError: there is no such file, it is damaged, or it was saved with another rank or vocabulary.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        version_of_format, step = (int(x) for x in arrays.pop("counts"))
        if version_of_format != _FORMAT:
            raise BackendError(f"{path} has format {version_of_format}, this version reads {_FORMAT}")
        parts: dict[str, dict[str, Any]] = {"weight": {}, "first": {}, "second": {}}
        for name, array in arrays.items():
            kind, _, matrix = name.partition(".")
            parts[kind][matrix] = array
    except FileNotFoundError:
        raise BackendError(
            f"no checkpoint of the mock backend at {path}", hint="name the folder of one of its checkpoints"
        ) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BackendError(f"the checkpoint {path} can't be read: {error}") from error
    for name, matrix in (("A", model.A), ("B", model.B)):
        if parts["weight"][name].shape != matrix.shape:
            raise BackendError(
                f"the checkpoint {path} has a matrix {name} of shape {list(parts['weight'][name].shape)}, "
                f"this model's is {list(matrix.shape)}",
                hint="train with the lora_rank and the model that it was saved with",
            )
    optimizer = AdamState(step=step, first=parts["first"], second=parts["second"])
    return Saved(weights=parts["weight"], optimizer=optimizer)
