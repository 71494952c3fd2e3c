"""Base weights from files: GGUF, or a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.params import Array
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.safetensors import SafetensorsFile

#: Above this many parameters a CPU is the wrong machine; loading is refused.
MAX_PARAMETERS = 2_000_000_000

#: Longest context that is offered, whatever the model could do: attention grows with its square.
MAX_CONTEXT = 8192

#: The way out for models that this engine doesn't run.
OTHER_ROUTE = "train it through a server that speaks the Tinker protocol: backend: {kind: tinker, params: {base_url: ...}}"

_GGUF_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_GGUF_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def load_weights(path: Path, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights from a ``.gguf`` file or a folder with ``config.json`` and safetensors (or one GGUF file).

    Raises:
        ConfigError: an architecture, option or size that this engine doesn't run; names the route that would work.
        DataError: missing or damaged files, or NaN in the weights.
    """
    if path.is_file():
        return load_gguf(GgufFile(path), dtype)
    if (path / "config.json").is_file():
        return load_folder(path, dtype)
    return load_gguf(GgufFile(gguf_file(path)), dtype)


def gguf_file(folder: Path) -> Path:
    """The one GGUF file of a folder.

    Raises:
        DataError: there is none, or several.
    """
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise DataError(
            "no model: neither config.json nor exactly one .gguf file is in it", source=str(folder)
        )
    return found[0]


def _fill(weights: BaseWeights, read: Callable[[str], Array], source: str) -> BaseWeights:
    """Copy every array in, checking its shape."""
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


def _unsupported(source: str, what: str) -> ConfigError:
    return ConfigError(f"{source}: {what} is not supported by the local engine", hint=OTHER_ROUTE)


def require_supported_size(shape: ModelShape, source: str) -> None:
    """Raise ``ConfigError`` for a model that is too large for a CPU."""
    if shape.parameters > MAX_PARAMETERS:
        raise _unsupported(
            source, f"a model of {shape.parameters:,} parameters (more than {MAX_PARAMETERS:,})"
        )


def _allocate(shape: ModelShape, dtype: DTypeLike, source: str) -> BaseWeights:
    require_supported_size(shape, source)
    return BaseWeights.allocate(shape, dtype)


def gguf_shape(file: GgufFile) -> ModelShape:
    """Sizes from GGUF metadata.

    Raises:
        ConfigError: an architecture or a rotary scaling that isn't supported.
    """
    meta = file.metadata
    architecture = meta.get("general.architecture", "unknown")
    if architecture not in ("llama", "qwen2", "qwen3"):
        raise _unsupported(str(file.path), f"architecture {architecture!r} (llama, qwen2 and qwen3 are)")

    def value(key: str, default: Any = None) -> Any:
        found = meta.get(f"{architecture}.{key}", default)
        if found is None:
            raise DataError(f"damaged: metadata {architecture}.{key} is missing", source=str(file.path))
        return found

    def decimal(key: str, default: float) -> float:
        # The file holds float32; 1e-5 was meant, not 9.99999975e-06.
        return float(str(np.float32(value(key, default))))

    if "rope_freqs.weight" in file.tensors or value("rope.scaling.type", "none") not in ("none", ""):
        raise _unsupported(str(file.path), "scaling of rotary positions")
    heads = value("attention.head_count")
    dim = value("embedding_length")
    return ModelShape(
        dim=dim,
        layers=value("block_count"),
        heads=heads,
        kv_heads=value("attention.head_count_kv", heads),
        head_dim=value("attention.key_length", dim // heads),
        hidden=value("feed_forward_length"),
        vocab=file.tensors["token_embd.weight"].shape[0],
        rope_theta=decimal("rope.freq_base", 10000.0),
        norm_eps=decimal("attention.layer_norm_rms_epsilon", 1e-5),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        max_context=min(int(value("context_length")), MAX_CONTEXT),
    )


def load_gguf(file: GgufFile, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights of a GGUF file, dequantised."""
    shape = gguf_shape(file)
    permuted = file.metadata["general.architecture"] == "llama"

    def read(name: str) -> Array:
        if name in _GGUF_TOP:
            return file.tensor(_GGUF_TOP[name])
        _, _, layer, rest = name.split(".", 3)
        array = file.tensor(f"blk.{layer}.{_GGUF_LAYER[rest]}")
        heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(rest.split(".")[1])
        if permuted and heads and rest.endswith(("proj.weight", "proj.bias")):
            # The converter interleaves the two halves of each head; rotation here works on halves.
            pairs = array.reshape(heads, shape.head_dim // 2, 2, -1).swapaxes(1, 2)
            return pairs.reshape(array.shape)
        return array

    return _fill(_allocate(shape, dtype, str(file.path)), read, str(file.path))


#: Supported architectures, and how each differs from Llama.
_FAMILIES: dict[str, dict[str, bool]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {"qkv_bias": True},
    "Qwen3ForCausalLM": {"qk_norm": True},
}


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a Hugging Face folder.

    Raises:
        DataError: it isn't a JSON object.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"not JSON ({error})", source=str(path)) from error
    if not isinstance(config, dict):
        raise DataError("not a JSON object", source=str(path))
    return config


def folder_shape(config: dict[str, Any], source: str) -> ModelShape:
    """Sizes from a Hugging Face ``config.json``.

    Raises:
        ConfigError: an architecture or an option that isn't supported; names the route that would work.
    """
    architectures = config.get("architectures") or ["unknown"]
    family = _FAMILIES.get(architectures[0])
    if family is None:
        raise _unsupported(source, f"architecture {architectures[0]} ({', '.join(_FAMILIES)} are)")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise _unsupported(source, f"rope_scaling {scaling}")
    if config.get("hidden_act", "silu") != "silu" or config.get("mlp_bias"):
        raise _unsupported(source, "an MLP with biases or another activation than silu")
    if config.get("attention_bias") and architectures[0] == "LlamaForCausalLM":
        raise _unsupported(source, "attention_bias")
    names = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    missing = [name for name in names if not isinstance(config.get(name), int)]
    if missing:
        raise DataError(f"config.json lacks {', '.join(missing)}", source=source)
    heads, dim, layers, hidden, vocab = (int(config[name]) for name in names)
    return ModelShape(
        dim=dim,
        layers=layers,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or dim // heads),
        hidden=hidden,
        vocab=vocab,
        rope_theta=float(config.get("rope_theta") or scaling.get("rope_theta") or 10000.0),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tied=bool(config.get("tie_word_embeddings", False)),
        max_context=_context(config),
        **family,
    )


def _context(config: dict[str, Any]) -> int:
    """Longest sequence; attention here is never windowed, so a window bounds it too."""
    longest = min(int(config.get("max_position_embeddings", 2048)), MAX_CONTEXT)
    window = config.get("sliding_window")
    return min(longest, int(window)) if window and config.get("use_sliding_window", True) else longest


def load_folder(folder: Path, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights of a Hugging Face folder (``config.json`` and ``*.safetensors``)."""
    shape = folder_shape(read_config(folder), str(folder))
    files = [SafetensorsFile(path) for path in sorted(folder.glob("*.safetensors"))]
    owner = {name: file for file in files for name in file}
    if not owner:
        raise DataError(
            "no .safetensors file", source=str(folder), hint="save the model with safe_serialization=True"
        )

    def read(name: str) -> Array:
        if name not in owner:
            raise DataError(f"no file holds {name}", source=str(folder))
        return owner[name][name]

    return _fill(_allocate(shape, dtype, str(folder)), read, str(folder))
