"""Saves and restores what is trained: adapters in the PEFT layout, whole models by Hugging Face names, the optimiser.

A folder holds `adapter_model.safetensors` with `adapter_config.json`, or `model.safetensors` when the whole model is
trained, and `optimizer.safetensors` for going on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.lora import LoraParams
from evsys_backend_local.engine.params import Array
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
FULL = "model.safetensors"
OPTIMISER = "optimizer.safetensors"


def peft_name(name: str) -> str:
    """The name PEFT gives to `layers.0.self_attn.q_proj.lora_A`."""
    return f"base_model.model.model.{name}.weight"


def adapter_config(lora: LoraParams, base: str) -> dict[str, Any]:
    """Content of `adapter_config.json`, as PEFT reads it."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def save_weights(model: Trainable | Snapshot, directory: Path) -> list[str]:
    """Write the trained weights into ``directory`` (made if needed); returns the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    if model.lora is None:
        write_safetensors(directory / FULL, dict(model.weights.params.items()), {"format": "pt"})
        return [FULL]
    arrays = {peft_name(name): array for name, array in model.lora.params.items()}
    write_safetensors(directory / ADAPTER, arrays, {"format": "pt"})
    text = json.dumps(adapter_config(model.lora, model.weights.name), ensure_ascii=False, indent=2)
    (directory / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")
    return [ADAPTER, ADAPTER_CONFIG]


def save_state(model: Trainable, directory: Path) -> Mapping[str, Any]:
    """Write weights, optimiser and the gradient that no step has used yet.

    Returns:
        JSON values for the record: ``files``, ``optimizer_steps`` and the ``digest`` of the trained weights.
    """
    names = save_weights(model, directory)
    arrays = {"m": model.adam.m, "v": model.adam.v, "grad": model.grad.flat}
    write_safetensors(directory / OPTIMISER, arrays, {"step": str(model.adam.step)})
    return {"files": [*names, OPTIMISER], "optimizer_steps": model.adam.step, "digest": model.digest}


def load_state(model: Trainable, directory: Path, *, with_optimizer: bool) -> None:
    """Restore what :func:`save_state` (or, without optimiser, :func:`save_weights`) wrote.

    Args:
        model: made with the same base model and the same LoRA settings; its weights are replaced.
        directory: the checkpoint.
        with_optimizer: restore the optimiser and the open gradient too; without, the optimiser stays fresh.

    Raises:
        ConfigError: the checkpoint was trained with other LoRA settings, or from another base model.
        DataError: files are missing or damaged.
    """
    if model.lora is None:
        file = _open(directory / FULL)
        _assign(model, {name: file[name] for name in file}, directory)
    else:
        _require_same_lora(model.lora, directory)
        file = _open(directory / ADAPTER)
        wanted = {peft_name(name): name for name in model.lora.params}
        _assign(model, {wanted.get(name, name): file[name] for name in file}, directory)
    if with_optimizer:
        _load_optimiser(model, directory)


def _open(path: Path) -> SafetensorsFile:
    if not path.is_file():
        raise DataError("checkpoint file is missing", source=str(path), hint="choose a complete checkpoint")
    return SafetensorsFile(path)


def _require_same_lora(lora: LoraParams, directory: Path) -> None:
    path = directory / ADAPTER_CONFIG
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        same = {
            "rank": (int(saved["r"]), lora.rank),
            "alpha": (float(saved["lora_alpha"]), lora.alpha),
            "target modules": (sorted(saved["target_modules"]), sorted(lora.targets)),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read the adapter's settings ({error})", source=str(path)) from error
    different = [
        f"{name} {there} there, {here} here" for name, (there, here) in same.items() if there != here
    ]
    if different:
        raise ConfigError(
            f"{directory}: the checkpoint has other LoRA settings: {'; '.join(different)}",
            hint="give the algorithm the checkpoint's lora_rank, lora_alpha and target_modules",
        )


def _assign(model: Trainable, values: dict[str, Array], directory: Path) -> None:
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise DataError(
                f"{name} holds NaN or infinity", source=str(directory), hint="choose an earlier checkpoint"
            )
    try:
        model.load_params(values, what=str(directory))
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint does not fit the base model: {error}",
            hint="use the model.name that it was trained from",
        ) from error


def _load_optimiser(model: Trainable, directory: Path) -> None:
    file = _open(directory / OPTIMISER)
    for name, target in (("m", model.adam.m), ("v", model.adam.v), ("grad", model.grad.flat)):
        if name not in file or file[name].shape != target.shape:
            raise DataError(f"optimiser state {name} is missing or has another size", source=str(file.path))
        target[...] = file[name]
    model.adam.step = int(file.metadata["step"])
