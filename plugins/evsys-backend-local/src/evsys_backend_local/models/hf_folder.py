"""Hugging Face folders: which safetensors files hold a model, and its weights out of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from evsys.errors import DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.families import unsupported_error
from evsys_backend_local.models.filling import allocate, fill
from evsys_backend_local.models.hf_config import config_header, read_config
from evsys_backend_local.models.safetensors import SafetensorsFile

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

#: Element types widened to float32.
FLOATS = ("F64", "F32", "F16", "BF16")


class FolderWeights:
    """The arrays of a folder, from any of its files.

    An index names the files; without one it is `model.safetensors`; without that, every safetensors file that isn't
    an adapter's.

    Attributes:
        files: the files, by name.

    Raises:
        DataError: there are none, or one that the index names is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = self._names()
        self.files = {name: SafetensorsFile(folder / name) for name in names}
        self._owner = {array: file for file in self.files.values() for array in file}

    def _names(self) -> list[str]:
        index = self.folder / INDEX
        if index.is_file():
            names = _shards(index)
            absent = [name for name in names if not (self.folder / name).is_file()]
            if absent:
                raise DataError(
                    f"{len(absent)} of {len(names)} files are missing: {', '.join(absent[:5])}",
                    source=str(self.folder),
                    hint=f"copy or download all files that {INDEX} names",
                )
            return names
        if (self.folder / WEIGHTS).is_file():
            return [WEIGHTS]
        names = sorted(
            path.name
            for path in self.folder.glob("*.safetensors")
            if path.is_file() and not path.name.startswith(("adapter_", "optimizer"))
        )
        if not names:
            raise DataError(
                "no .safetensors file",
                source=str(self.folder),
                hint="save the model with safe_serialization=True",
            )
        return names

    def __getitem__(self, name: str) -> Array:
        file = self._owner.get(name)
        if file is None:
            raise DataError(f"no file holds {name}", source=str(self.folder))
        self._require_floats(file, name)
        return file[name]

    def _require_floats(self, file: SafetensorsFile, name: str) -> None:
        if file.kind(name) not in FLOATS:
            raise unsupported_error(
                str(file.path), f"{name} of the type {file.kind(name)} ({', '.join(FLOATS)} load)"
            )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every array, from the headers."""
        return {name: file.shape(name) for name, file in self._owner.items()}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Element types that occur, such as `BF16`."""
        return tuple(sorted({file.kind(name) for name, file in self._owner.items()}))


def _shards(index: Path) -> list[str]:
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if not isinstance(places, Mapping) or not all(isinstance(name, str) for name in places.values()):
            raise TypeError("weight_map is not an object of file names")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not an index of safetensors files ({error})", source=str(index)) from error
    names = sorted(set(places.values()))
    outside = [name for name in names if Path(name).name != name]
    if outside or not names:
        raise DataError(f"it names no file of this folder: {outside[:5]}", source=str(index))
    return names


def load_folder(folder: Path, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights of a Hugging Face folder (``config.json`` and safetensors)."""
    shape = config_header(read_config(folder), str(folder)).shape
    arrays = FolderWeights(folder)
    return fill(allocate(shape, dtype, str(folder)), arrays.__getitem__, str(folder))
