"""Models in GGUF files: what the metadata says of them, and their weights by Hugging Face name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from evsys.errors import DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.families import (
    BY_GGUF,
    LLAMA,
    Family,
    ModelHeader,
    bounded_context,
    require_sense,
    unsupported_error,
)
from evsys_backend_local.models.filling import allocate, fill
from evsys_backend_local.models.gguf import GgufFile

_LAYER = {
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
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
#: Divisors of the rotary frequencies, where the model stretches its positions as Llama 3.1 does.
_ROPE_FACTORS = "rope_freqs.weight"


class _Metadata:
    """The values of one architecture."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def get(self, key: str, default: Any = None) -> Any:
        found = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if found is None:
            raise self.damaged(key, "is missing")
        return found

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.damaged(key, f"is {value!r}, not a whole number above 0")
        return value

    def decimal(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.damaged(key, f"is {value!r}, not a number above 0")
        # The file holds float32; 1e-5 was meant, not 9.99999975e-06.
        return float(str(np.float32(value)))

    def damaged(self, key: str, what: str) -> DataError:
        return DataError(f"damaged: metadata {self.architecture}.{key} {what}", source=str(self.file.path))


def gguf_header(file: GgufFile) -> ModelHeader:
    """The model header from the metadata of a GGUF file.

    Raises:
        UnsupportedModelError: an architecture or option that isn't supported.
        DataError: metadata is missing or makes no sense.
    """
    source = str(file.path)
    architecture = str(file.metadata.get("general.architecture", "unknown"))
    family = BY_GGUF.get(architecture)
    if family is None:
        raise unsupported_error(source, f"architecture {architecture!r}")
    meta = _Metadata(file, architecture)
    dim, heads = meta.size("embedding_length"), meta.size("attention.head_count")
    head_dim = meta.size("attention.key_length", dim // heads)
    layers = meta.size("block_count")
    require_sense(layers, head_dim, source)
    _refuse_options(meta, head_dim, source)
    if "token_embd.weight" not in file.tensors:
        raise DataError("damaged: no tensor 'token_embd.weight'", source=source)
    factors, rope = _rope(meta, head_dim, source)
    declared = meta.size("context_length")
    # Readers of these files disagree on whether this window acts; up to its length they all agree.
    window = file.metadata.get(f"{architecture}.attention.sliding_window") or None
    context, reason = bounded_context(declared, window)
    try:
        shape = ModelShape(
            dim=dim,
            layers=layers,
            heads=heads,
            kv_heads=meta.size("attention.head_count_kv", heads),
            head_dim=head_dim,
            hidden=meta.size("feed_forward_length"),
            vocab=file.tensors["token_embd.weight"].shape[0],
            rope_theta=meta.decimal("rope.freq_base", 10000.0),
            rope_factors=factors,
            norm_eps=meta.decimal("attention.layer_norm_rms_epsilon", 1e-5),
            tied="output.weight" not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
            max_context=context,
        )
    except ValueError as error:
        raise DataError(f"the metadata makes no sense: {error}", source=source) from error
    _require_family(shape, family, source)
    return ModelHeader(
        family=family, shape=shape, declared_context=declared, rope=rope, context_reason=reason
    )


def _require_family(shape: ModelShape, family: Family, source: str) -> None:
    """A `llama` file with biases, say, is none of the families whose arithmetic is known here."""
    for what, here, expected in (
        ("biases of q, k and v", shape.qkv_bias, family.qkv_bias),
        ("norms of q and k", shape.qk_norm, family.qk_norm),
    ):
        if here != expected:
            raise unsupported_error(source, f"a {family.name} model {'with' if here else 'without'} {what}")


def _refuse_options(meta: _Metadata, head_dim: int, source: str) -> None:
    if meta.get("expert_count", 0):
        raise unsupported_error(source, "a mixture of experts")
    if meta.get("attention.value_length", head_dim) != head_dim:
        raise unsupported_error(source, "heads whose values are wider than their keys")
    rotated = meta.get("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise unsupported_error(source, f"rotation of {rotated} of {head_dim} numbers of a head")


def _rope(meta: _Metadata, head_dim: int, source: str) -> tuple[tuple[float, ...] | None, str]:
    """Divisors of the rotary frequencies, and what they are called."""
    kind = meta.get("rope.scaling.type", "none") or "none"
    if kind not in ("none", "linear"):
        raise unsupported_error(
            source, f"scaling of rotary positions of the kind {kind!r} (linear and llama3 are)"
        )
    if _ROPE_FACTORS in meta.file.tensors:
        stored = meta.file.tensor(_ROPE_FACTORS).reshape(-1)
        if len(stored) != head_dim // 2 or not (stored > 0).all():
            raise DataError(
                f"{_ROPE_FACTORS} must hold {head_dim // 2} numbers above 0, it holds {stored}", source=source
            )
        return tuple(stored.astype(np.float64).tolist()), "llama3"
    if kind == "linear":
        return (meta.decimal("rope.scaling.factor", 1.0),) * (head_dim // 2), "linear"
    return None, ""


def tensor_name(name: str) -> str:
    """The name in a GGUF file of the array called ``name`` by Hugging Face."""
    if name in _TOP:
        return _TOP[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_LAYER[rest]}"


def load_gguf(file: GgufFile, dtype: DTypeLike = np.float32) -> BaseWeights:
    """Base weights of a GGUF file, dequantised."""
    header = gguf_header(file)
    shape, source = header.shape, str(file.path)
    permuted = header.family is LLAMA
    interleaved = {"q_proj.weight": shape.heads, "k_proj.weight": shape.kv_heads}

    def read(name: str) -> Array:
        array = file.tensor(tensor_name(name))
        heads = next((heads for part, heads in interleaved.items() if name.endswith(part)), None)
        if (
            permuted and heads and len(array) == heads * shape.head_dim
        ):  # of another shape it is refused below
            # The converter interleaves the two halves of each head; rotation here works on halves.
            pairs = array.reshape(heads, shape.head_dim // 2, 2, -1).swapaxes(1, 2)
            return pairs.reshape(array.shape)
        return array

    return fill(allocate(shape, dtype, source), read, source)
