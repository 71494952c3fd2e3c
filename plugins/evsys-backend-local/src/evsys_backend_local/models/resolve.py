"""From a model's name in the experiment file to its weights."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from evsys.errors import ConfigError, EvsysError, Problem
from evsys.types import ModelSpec
from evsys_backend_local.engine.shape import LINEARS, ModelShape
from evsys_backend_local.tiny.shape import SHAPE
from evsys_runtime.rendering.cache import TINY, find_model

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from evsys_backend_local.engine.arrays import Arrays
    from evsys_backend_local.engine.weights import BaseWeights


def resolve(name: str | Path) -> Path | None:
    """Folder of a base model, by name or absolute path; None for what is built in.

    Raises:
        ConfigError: it isn't on this machine; the message has the command that fetches it.
    """
    if name == TINY:
        return None
    return find_model(name).folder


def load_base(name: str | Path, dtype: DTypeLike = "float32") -> BaseWeights:
    """Base weights by model name or folder.

    Raises:
        ConfigError: not on this machine, or an architecture that this engine doesn't run.
        DataError: files are missing, damaged or hold NaN.
    """
    from evsys_backend_local.models.load import load_weights

    folder = resolve(name)
    if folder is None:
        from evsys_backend_local.tiny.model import load_tiny

        weights = load_tiny(dtype)
    else:
        weights = load_weights(folder, dtype)
    weights.name = str(name)
    return weights


def shared_base(name: str | Path, xp: Arrays | None = None) -> BaseWeights:
    """Base weights that no one writes to: the same object for all who hold those of one model, as its files are now.

    Args:
        name: as for `load_base`.
        xp: where they are to lie; in numpy's arrays by default.

    Raises:
        ConfigError, DataError: see `load_base`.
    """
    from evsys_backend_local.engine.arrays import NUMPY

    table = xp or NUMPY
    folder = resolve(name)
    files = () if folder is None else tuple(sorted(_signature(path) for path in _files(folder)))
    key = (str(name), files, table)
    with _SHARING:
        weights = _SHARED.get(key)
        if weights is None:
            weights = _SHARED[key] = load_base(name).on(table)
    return weights


_SHARING = threading.Lock()
_SHARED: weakref.WeakValueDictionary[tuple[str, tuple[object, ...], Arrays], BaseWeights] = (
    weakref.WeakValueDictionary()
)


def _files(folder: Path) -> list[Path]:
    return [folder] if folder.is_file() else [path for path in folder.iterdir() if path.is_file()]


def _signature(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return path.name, status.st_mtime_ns, status.st_size


def _examine_base(model: ModelSpec) -> tuple[ModelShape, list[str]]:
    """Sizes of a base model, and what is wrong with its files, from their headers alone.

    Raises:
        ConfigError: not on this machine, or an architecture or size that this engine doesn't run.
        DataError: files missing or damaged.
    """
    folder = resolve(model.name)
    if folder is None:
        return SHAPE, []
    # `evsys validate` asks for the built-in model without importing numpy.
    from evsys_backend_local.models.families import require_supported_size
    from evsys_backend_local.models.soundness import checked_header, template_problems, tokenizer_problems

    header, wrong = checked_header(folder)
    require_supported_size(header.shape, str(folder))
    problems = [f"{folder}: {problem}" for problem in wrong] + tokenizer_problems(folder)
    if model.renderer is None:
        problems += template_problems(folder)
    return header.shape, problems


def model_problems(model: ModelSpec) -> Iterable[str | Problem]:
    """The problems of a model spec that this machine can find without loading weights."""
    problems: list[str | Problem] = []
    try:
        shape, wrong = _examine_base(model)
        problems += wrong
    except ConfigError as error:
        problems += [str(problem) for problem in error.problems]
    except (EvsysError, ValueError, OSError) as error:
        problems.append(str(error))
    else:
        if model.max_length is not None and model.max_length > shape.max_context:
            problems.append(
                f"max_length {model.max_length} exceeds the context of {model.name}, {shape.max_context} tokens"
            )
    if model.lora.rank is not None and "all-linear" not in model.lora.targets:
        unknown = sorted(set(model.lora.targets) - set(LINEARS))
        if unknown or not model.lora.targets:
            problems.append(
                Problem(
                    path="$.algorithm.params.target_modules",
                    message=f"unknown target modules {unknown}",
                    hint=f"choose among all-linear, {', '.join(LINEARS)}",
                )
            )
    return problems
