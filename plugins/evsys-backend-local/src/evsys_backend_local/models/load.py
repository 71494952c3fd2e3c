"""A model from its path: what its header says, and its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from evsys.errors import DataError
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.families import ModelHeader
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.gguf_model import gguf_header, load_gguf
from evsys_backend_local.models.hf_config import CONFIG, config_header, read_config
from evsys_backend_local.models.hf_folder import load_folder

#: Of a folder that is not a model.
NO_MODEL_IN = "neither config.json nor a .gguf file is in it"

#: What can be one.
LAYOUTS = "a model is a GGUF file, or a folder with config.json, .safetensors and tokenizer.json"


def load_weights(path: Path, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights from a ``.gguf`` file or a folder with ``config.json`` and safetensors (or one GGUF file).

    Raises:
        UnsupportedModelError: an architecture, option or size that this engine doesn't run; names the route that works.
        NotEnoughMemoryError: the weights don't fit into this machine.
        DataError: missing or damaged files, or NaN in the weights.
    """
    if is_folder_model(path):
        return load_folder(path, dtype)
    return load_gguf(GgufFile(gguf_file(path)), dtype)


def read_header(path: Path) -> ModelHeader:
    """Read the header of a model, without its weights.

    Raises:
        UnsupportedModelError: an architecture or an option that this engine doesn't run.
        DataError: missing or damaged files.
    """
    if is_folder_model(path):
        return config_header(read_config(path), str(path))
    return gguf_header(GgufFile(gguf_file(path)))


def is_folder_model(path: Path) -> bool:
    """Whether the model lies in Hugging Face's layout."""
    return (path / CONFIG).is_file()


def gguf_file(path: Path) -> Path:
    """``path`` itself if it is a file, else the one GGUF file of that folder.

    Raises:
        DataError: there is none, or several.
    """
    if path.is_file():
        return path
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        raise DataError(
            f"{len(found)} .gguf files; keep one model in a folder" if found else f"no model: {NO_MODEL_IN}",
            source=str(path),
            hint=None if found else LAYOUTS,
        )
    return found[0]
