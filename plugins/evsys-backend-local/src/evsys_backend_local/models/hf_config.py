"""Sizes of a model from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evsys.errors import DataError
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.models import rope
from evsys_backend_local.models.families import (
    BY_ARCHITECTURE,
    BY_MODEL_TYPE,
    QWEN2,
    Family,
    ModelHeader,
    bounded_context,
    require_sense,
    unsupported_error,
)

CONFIG = "config.json"

_SIZES = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")

#: What Hugging Face's classes take where a config says nothing of its context or its epsilon.
_DEFAULT_CONTEXT, _DEFAULT_EPS = 2048, 1e-6

#: `sliding_window` of Mistral and `max_window_layers` of Qwen, where the config lacks them.
_DEFAULT_WINDOW, _DEFAULT_WINDOW_LAYERS = 4096, 28


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a Hugging Face folder.

    Raises:
        DataError: it isn't a JSON object.
    """
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", source=str(path)) from error
    if not isinstance(config, dict):
        raise DataError("not a JSON object", source=str(path))
    return config


def config_header(config: Mapping[str, Any], source: str) -> ModelHeader:
    """The model header from a ``config.json``.

    Raises:
        UnsupportedModelError: an architecture or an option that isn't supported; names the route that would work.
        DataError: a size is missing or impossible.
    """
    family = _family(config, source)
    _refuse_options(config, family, source)
    scaling = _scaling(config, source)
    missing = [name for name in _SIZES if not _is_size(config.get(name))]
    if missing:
        raise DataError(f"config.json lacks {', '.join(missing)}", source=source)
    heads, dim, layers, hidden, vocab = (int(config[name]) for name in _SIZES)
    head_dim = _size(config, "head_dim", dim // heads, source)
    require_sense(layers, head_dim, source)
    theta = _number(config.get("rope_theta") or scaling.get("rope_theta") or 10000.0, "rope_theta", source)
    window, mixed = _windows(config, family, layers, source)
    declared = _size(config, "max_position_embeddings", _DEFAULT_CONTEXT, source)
    context, reason = bounded_context(declared, window if mixed else None)
    try:
        shape = ModelShape(
            dim=dim,
            layers=layers,
            heads=heads,
            kv_heads=_size(config, "num_key_value_heads", heads, source),
            head_dim=head_dim,
            hidden=hidden,
            vocab=vocab,
            rope_theta=theta,
            rope_factors=rope.factors_of(scaling, head_dim, theta, source),
            norm_eps=_number(config.get("rms_norm_eps", _DEFAULT_EPS), "rms_norm_eps", source),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family.qkv_bias,
            qk_norm=family.qk_norm,
            window=None if mixed else window,
            max_context=context,
        )
    except ValueError as error:
        raise DataError(f"config.json makes no sense: {error}", source=source) from error
    kind = rope.rope_kind(scaling)
    return ModelHeader(
        family=family,
        shape=shape,
        declared_context=declared,
        rope="" if kind == "default" else kind,
        context_reason=reason,
    )


def _family(config: Mapping[str, Any], source: str) -> Family:
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        family, name = BY_ARCHITECTURE.get(str(architectures[0])), str(architectures[0])
    else:
        family, name = BY_MODEL_TYPE.get(str(config.get("model_type"))), str(config.get("model_type"))
    if family is None:
        raise unsupported_error(source, f"architecture {name}")
    return family


def _refuse_options(config: Mapping[str, Any], family: Family, source: str) -> None:
    """Raise for options that would change the arithmetic; ignoring one would give another model."""
    if config.get("hidden_act", "silu") not in ("silu", "swish") or config.get("mlp_bias"):
        raise unsupported_error(source, "an MLP with biases or another activation than silu")
    if config.get("attention_bias") and family is not QWEN2:
        raise unsupported_error(source, "attention_bias")
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method", "unknown") if isinstance(quantised, Mapping) else quantised
        raise unsupported_error(
            source, f"a quantised checkpoint ({method}; float32, float16 and bfloat16 load)"
        )


def _scaling(config: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """`rope_scaling`, under either of its names, if its kind is supported."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise DataError(f"rope_scaling is {scaling!r}, not an object", source=source)
    if rope.rope_kind(scaling) not in rope.SUPPORTED or any(isinstance(v, Mapping) for v in scaling.values()):
        raise unsupported_error(source, f"rope_scaling {dict(scaling)} ({', '.join(rope.SUPPORTED)} are)")
    share = config.get("partial_rotary_factor") or scaling.get("partial_rotary_factor") or 1
    if share != 1:
        raise unsupported_error(source, f"partial_rotary_factor {share}")
    return scaling


def _windows(config: Mapping[str, Any], family: Family, layers: int, source: str) -> tuple[int | None, bool]:
    """The sliding window, and whether blocks differ in having it."""
    active = family.windowed or (family.optional_window and config.get("use_sliding_window"))
    default = _DEFAULT_WINDOW if family.windowed else None
    if not active or not config.get("sliding_window", default):
        return None, False
    window = _size({"sliding_window": default, **config}, "sliding_window", 0, source)
    types = config.get("layer_types")
    if isinstance(types, list):
        windowed = sum(kind == "sliding_attention" for kind in types)
    elif family.windowed:
        windowed = layers
    else:
        first = config.get("max_window_layers", _DEFAULT_WINDOW_LAYERS)
        if first != 0:
            first = _size(config, "max_window_layers", _DEFAULT_WINDOW_LAYERS, source)
        windowed = layers - min(layers, first)
    return (None, False) if windowed == 0 else (window, windowed < layers)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _size(config: Mapping[str, Any], name: str, default: int, source: str) -> int:
    """A whole number above 0; None and a missing key are the default."""
    value = config.get(name)
    if value is None:
        return default
    if not _is_size(value):
        raise DataError(f"config.json: {name} is {value!r}, not a whole number above 0", source=source)
    return int(value)


def _number(value: object, name: str, source: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise DataError(f"config.json: {name} is {value!r}, not a number above 0", source=source)
    return float(value)
