"""Faults of a model's files, found by reading only their headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evsys.errors import EvsysError
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import weight_specs
from evsys_backend_local.models.families import ModelHeader
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.gguf_model import gguf_header, tensor_name
from evsys_backend_local.models.hf_config import config_header, read_config
from evsys_backend_local.models.hf_folder import FLOATS, FolderWeights
from evsys_backend_local.models.load import gguf_file, is_folder_model
from evsys_backend_local.models.quantisation import PACKINGS, kind_name
from evsys_runtime.rendering.templates import load_template


def checked_header(path: Path) -> tuple[ModelHeader, list[str]]:
    """The model header of a folder or GGUF file, and the faults that keep its weights from being loaded.

    Raises:
        UnsupportedModelError: an architecture or an option that this engine doesn't run.
        DataError: files missing, or whose headers are damaged.
    """
    if is_folder_model(path):
        header = config_header(read_config(path), str(path))
        return header, folder_problems(FolderWeights(path), header.shape)
    file = GgufFile(gguf_file(path))
    header = gguf_header(file)
    return header, gguf_problems(file, header.shape)


def tokenizer_problems(folder: Path) -> list[str]:
    """Whether a model's folder lacks its tokenizer, and where one comes from."""
    path = folder / "tokenizer.json"
    if path.is_file():
        return []
    way = "copy the model's tokenizer.json there"
    if not is_folder_model(folder):
        way += ", or let `evsys models fetch NAME --from-file` build one from the GGUF file"
    return [f"{path}: there is no tokenizer; {way}"]


def template_problems(folder: Path, variables: Mapping[str, Any] | None = None) -> list[str]:
    """Why a model's own chat template can't be used, where no renderer is named in its place."""
    try:
        load_template(folder, variables=variables)
    except EvsysError as error:
        return [f"{error}, named in model.renderer"]
    return []


def folder_problems(weights: FolderWeights, shape: ModelShape) -> list[str]:
    """Arrays of a Hugging Face folder missing, or of another shape or element type."""
    problems = _differences(weight_specs(shape), weights.shapes())
    strange = [kind for kind in weights.kinds if kind not in FLOATS]
    if strange:
        problems.append(f"weights of the type {', '.join(strange)}; {', '.join(FLOATS)} load")
    return problems


def gguf_problems(file: GgufFile, shape: ModelShape) -> list[str]:
    """Tensors of a GGUF file missing, cut off, or of another shape or quantisation."""
    expected = [(tensor_name(name), size) for name, size in weight_specs(shape)]
    problems = _differences(expected, {name: info.shape for name, info in file.tensors.items()})
    size = file.path.stat().st_size
    if file.needed > size:
        problems.append(f"cut off: it has {size} bytes and its tensors need {file.needed}; fetch it again")
    kinds = {info.kind for info in file.tensors.values()}
    strange = sorted(kind_name(kind) for kind in kinds if kind not in PACKINGS)
    if strange:
        known = ", ".join(packing.name for packing in PACKINGS.values())
        problems.append(f"tensors quantised as {', '.join(strange)}; {known} load")
    return problems


def _differences(
    expected: Iterable[tuple[str, tuple[int, ...]]], found: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Arrays that are absent or have another shape, as at most two lines."""
    absent, other = [], []
    for name, shape in expected:
        if name not in found:
            absent.append(name)
        elif found[name] != shape:
            other.append(f"{name} has shape {found[name]}, expected {shape}")
    lines = (
        [f"{_count_arrays(absent, 'is missing', 'are missing')}: {', '.join(absent[:3])}"] if absent else []
    )
    have = _count_arrays(other, "has another shape", "have another shape")
    return lines + ([f"{have}: {'; '.join(other[:3])}"] if other else [])


def _count_arrays(arrays: list[str], one: str, several: str) -> str:
    return f"1 array {one}" if len(arrays) == 1 else f"{len(arrays)} arrays {several}"
