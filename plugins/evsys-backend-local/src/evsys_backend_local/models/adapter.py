"""LoRA adapters in the layout of PEFT: `adapter_config.json` alongside `adapter_model.safetensors`.

The layout is that of https://github.com/huggingface/peft; adapters written here load there, and the other way round.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.lora import LoraParams
from evsys_backend_local.engine.shape import LINEARS, ModelShape
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors

ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

_NAME = re.compile(r"base_model\.model\.model\.(layers\.\d+\.\w+\.(\w+)\.lora_[AB])\.weight")

#: Settings that say where an adapter comes from or how it was trained, not what it computes.
_HARMLESS = frozenset(
    {
        *(
            "auto_mapping",
            "base_model_name_or_path",
            "inference_mode",
            "peft_version",
            "revision",
            "task_type",
        ),
        *(
            "corda_config",
            "eva_config",
            "init_lora_weights",
            "loftq_config",
            "lora_dropout",
            "lora_ga_config",
        ),
        *("exclude_modules", "layers_pattern", "megatron_core", "qalora_group_size", "ensure_weight_tying"),
        *("lora_alpha", "peft_type", "r", "target_modules"),
    }
)

#: Ways to start an adapter that leave the base model as it is. The others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) change the base's own
#: weights, which peft does again on loading: over the unchanged base, such an adapter would be another model.
_STARTS = frozenset({"true", "false", "none", "gaussian", "eva", "orthogonal", "mica"})

_OTHER_ADAPTERS = "merge it into its base model with peft, and train from the merged folder"


@attrs.frozen(kw_only=True, eq=False)
class SavedAdapter:
    """An adapter as it lies on the disk.

    Attributes:
        rank: columns of A.
        alpha: its scale is ``alpha / rank``.
        targets: linears that it changes.
        base: what its settings call the base model; empty where they don't.
        arrays: matrices, by the names of :class:`LoraParams`.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    base: str
    arrays: Mapping[str, Array]

    def params(self, shape: ModelShape, source: str) -> LoraParams:
        """The adapter for a base model of this shape.

        Raises:
            ConfigError: it was made for another.
        """
        lora = LoraParams(shape, rank=self.rank, alpha=self.alpha, targets=self.targets)
        try:
            lora.params.assign(self.arrays, what=source)
        except ValueError as error:
            raise ConfigError(
                f"the adapter does not fit the base model: {error}",
                hint="use the model that it was trained from",
            ) from error
        lora.refresh()
        return lora


def peft_name(name: str) -> str:
    """The name PEFT gives to `layers.0.self_attn.q_proj.lora_A`."""
    return f"base_model.model.model.{name}.weight"


def is_adapter(folder: Path) -> bool:
    """Whether there is an adapter in ``folder``."""
    return (folder / ADAPTER_CONFIG).is_file()


def write_adapter(lora: LoraParams, base: str, folder: Path) -> list[str]:
    """Write an adapter for the model ``base``; returns the names of the files."""
    arrays = {peft_name(name): array for name, array in lora.params.host_items()}
    write_safetensors(folder / ADAPTER, arrays, {"format": "pt"})
    settings = {
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
    text = json.dumps(settings, ensure_ascii=False, indent=2)
    (folder / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")
    return [ADAPTER, ADAPTER_CONFIG]


def read_adapter(folder: Path) -> SavedAdapter:
    """Read an adapter of ours or of PEFT's.

    Raises:
        ConfigError: it is of a kind that this engine doesn't compute, such as DoRA.
        DataError: files are missing or damaged, or hold NaN.
    """
    settings = _settings(folder / ADAPTER_CONFIG)
    path = folder / ADAPTER
    if not path.is_file():
        raise DataError(
            "checkpoint file is missing", source=str(path), hint="choose a complete checkpoint or adapter"
        )
    arrays, targets = _arrays(SafetensorsFile(path))
    try:
        rank, alpha = int(settings["r"]), float(settings["lora_alpha"])
        if not math.isfinite(alpha):
            raise ValueError(f"lora_alpha is {alpha}")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"cannot read the adapter's settings ({error!r})", source=str(folder / ADAPTER_CONFIG)
        ) from error
    _require_rank(arrays, rank, path)
    return SavedAdapter(
        rank=rank,
        alpha=alpha,
        targets=targets,
        base=str(settings.get("base_model_name_or_path") or ""),
        arrays=arrays,
    )


def _require_rank(arrays: Mapping[str, Array], rank: int, path: Path) -> None:
    """Memory is taken by the rank of the settings: the matrices must have it."""
    for name, array in arrays.items():
        own = array.shape[0 if name.endswith("lora_A") else -1] if array.ndim == 2 else None
        if own != rank:
            raise DataError(
                f"{ADAPTER_CONFIG} says rank {rank}, and {name} has the shape {array.shape}", source=str(path)
            )


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise TypeError("not a JSON object")
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"cannot read the adapter's settings ({error})", source=str(path)) from error
    if settings.get("peft_type", "LORA") != "LORA":
        raise ConfigError(
            f"{path}: the adapter is of the kind {settings['peft_type']}, only LORA is supported",
            hint=_OTHER_ADAPTERS,
        )
    active = {
        name: value
        for name, value in settings.items()
        if name not in _HARMLESS and value not in (None, False, "none", {}, [])
    }
    if active:
        told = ", ".join(f"{name}: {value}" for name, value in sorted(active.items()))
        raise ConfigError(
            f"{path}: the adapter has settings that this engine doesn't compute: {told}", hint=_OTHER_ADAPTERS
        )
    start = settings.get("init_lora_weights", True)
    if str(start).lower() not in _STARTS:
        raise ConfigError(
            f"{path}: the adapter was started as {start} (init_lora_weights), which also changes the base model's own weights",
            hint=_OTHER_ADAPTERS,
        )
    return settings


def _arrays(file: SafetensorsFile) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Matrices by our names, and the linears that they belong to (`target_modules` may be a pattern)."""
    arrays: dict[str, Array] = {}
    found: set[str] = set()
    for name in file:
        match = _NAME.fullmatch(name)
        if match is None or match[2] not in LINEARS:
            raise ConfigError(
                f"{file.path}: {name} changes a part of the model that this engine has no adapter for; it trains "
                f"{', '.join(LINEARS)}",
                hint=_OTHER_ADAPTERS,
            )
        array = file[name]
        if not np.isfinite(array).all():
            raise DataError(
                f"{name} holds NaN or infinity", source=str(file.path), hint="choose an earlier checkpoint"
            )
        arrays[match[1]] = array
        found.add(match[2])
    if not arrays:
        raise DataError("the adapter holds no matrices", source=str(file.path))
    return arrays, tuple(name for name in LINEARS if name in found)
