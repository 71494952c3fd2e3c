"""Saves and restores what is trained: adapters in the PEFT layout, whole models by Hugging Face names, the optimiser.

A folder holds `adapter_model.safetensors` with `adapter_config.json`, or `model.safetensors` when the whole model is
trained, and `optimizer.safetensors` for continuing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.lora import LoraParams
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.models.adapter import SavedAdapter, read_adapter, write_adapter
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors

FULL = "model.safetensors"
OPTIMISER = "optimizer.safetensors"

_EARLIER = "choose an earlier checkpoint"


def save_weights(model: Trainable | Snapshot, directory: Path) -> list[str]:
    """Write the trained weights into ``directory`` (made if needed); returns the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    if model.lora is None:
        write_safetensors(directory / FULL, dict(model.weights.params.host_items()), {"format": "pt"})
        return [FULL]
    return write_adapter(model.lora, model.weights.name, directory)


def save_state(model: Trainable, directory: Path) -> Mapping[str, Any]:
    """Write weights, their running mean where there is one, optimiser and the gradient that no step has used yet.

    Returns:
        JSON values for the record: ``files``, ``optimizer_steps`` and the ``digest`` of the trained weights.
    """
    names = save_weights(model, directory)
    host = model.params.xp.host
    arrays = {"m": host(model.adam.m), "v": host(model.adam.v), "grad": model.grad.host}
    if model.average is not None:
        arrays["average"] = host(model.average)
    write_safetensors(directory / OPTIMISER, arrays, {"step": str(model.adam.step)})
    return {"files": [*names, OPTIMISER], "optimizer_steps": model.adam.step, "digest": model.digest}


def load_state(model: Trainable, directory: Path, *, with_optimizer: bool) -> None:
    """Restore what :func:`save_state` (or, without optimiser, :func:`save_weights` or PEFT) wrote.

    Args:
        model: made with the same base model and the same LoRA settings; its weights are replaced.
        directory: the checkpoint.
        with_optimizer: restore the optimiser, the open gradient and the running mean too; without, all of these stay fresh.

    Raises:
        ConfigError: the checkpoint was trained with other LoRA settings, or from another base model.
        DataError: files are missing or damaged.
    """
    if model.lora is None:
        _assign(model, _whole_model(directory / FULL), directory)
    else:
        saved = read_adapter(directory)
        _require_same_lora(model.lora, saved, directory)
        _assign(model, dict(saved.arrays), directory)
    if with_optimizer:
        _load_optimiser(model, directory)


def _open(path: Path) -> SafetensorsFile:
    if not path.is_file():
        raise DataError("checkpoint file is missing", source=str(path), hint="choose a complete checkpoint")
    return SafetensorsFile(path)


def _require_same_lora(lora: LoraParams, saved: SavedAdapter, directory: Path) -> None:
    same = {
        "rank": (saved.rank, lora.rank),
        "alpha": (saved.alpha, lora.alpha),
        "target modules": (sorted(saved.targets), sorted(lora.targets)),
    }
    different = [
        f"{name} {there} there, {here} here" for name, (there, here) in same.items() if there != here
    ]
    if different:
        raise ConfigError(
            f"{directory}: the checkpoint has other LoRA settings: {'; '.join(different)}",
            hint="give the algorithm the checkpoint's lora_rank, lora_alpha and target_modules",
        )


def _whole_model(path: Path) -> dict[str, Array]:
    file = _open(path)
    values = {name: file[name] for name in file}
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise DataError(f"{name} holds NaN or infinity", source=str(path), hint=_EARLIER)
    return values


def _assign(model: Trainable, values: dict[str, Array], directory: Path) -> None:
    try:
        model.load_params(values, what=str(directory))
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint does not fit the base model: {error}",
            hint="use the model.name that it was trained from",
        ) from error


def _load_optimiser(model: Trainable, directory: Path) -> None:
    file = _open(directory / OPTIMISER)
    targets = {"m": model.adam.m, "v": model.adam.v, "grad": model.grad.flat}
    model.average = None
    if "average" in file:
        targets["average"] = model.average = model.params.xp.empty_like(model.params.flat)
    step = str(file.metadata.get("step", ""))
    if not step.isdecimal():
        raise DataError(f"optimiser state says {step!r} steps", source=str(file.path), hint=_EARLIER)
    for name, target in targets.items():
        if name not in file or file[name].shape != target.shape:
            raise DataError(f"optimiser state {name} is missing or has another size", source=str(file.path))
        if np.isnan(file[name]).any():
            raise DataError(f"optimiser state {name} holds NaN", source=str(file.path), hint=_EARLIER)
        target[...] = model.params.xp.put(file[name])
    model.adam.step = int(step)
