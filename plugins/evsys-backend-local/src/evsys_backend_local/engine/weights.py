"""Weights of the base model: one flat buffer, seen per layer with q/k/v and gate/up fused."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import DTypeLike

from evsys_backend_local.engine.arrays import NUMPY, Array, Arrays
from evsys_backend_local.engine.params import FlatParams, Spec
from evsys_backend_local.engine.shape import FUSED, PARENT, ModelShape


@attrs.frozen(kw_only=True)
class LayerWeights:
    """Views of one block. Matrices are ``[outputs, inputs]``, as in Hugging Face files."""

    attn_norm: Array
    qkv: Array
    qkv_bias: Array | None
    q_norm: Array | None
    k_norm: Array | None
    o: Array
    mlp_norm: Array
    gate_up: Array
    down: Array


def _layer_specs(shape: ModelShape, layer: int) -> list[Spec]:
    prefix = f"model.layers.{layer}."
    sizes = shape.linear_sizes()
    specs: list[Spec] = [(prefix + "input_layernorm.weight", (shape.dim,))]
    specs += [(f"{prefix}self_attn.{name}.weight", sizes[name]) for name in FUSED["qkv"]]
    if shape.qkv_bias:
        specs += [(f"{prefix}self_attn.{name}.bias", (sizes[name][0],)) for name in FUSED["qkv"]]
    if shape.qk_norm:
        specs += [(f"{prefix}self_attn.{name}.weight", (shape.head_dim,)) for name in ("q_norm", "k_norm")]
    specs.append((prefix + "self_attn.o_proj.weight", sizes["o_proj"]))
    specs.append((prefix + "post_attention_layernorm.weight", (shape.dim,)))
    specs += [(f"{prefix}mlp.{name}.weight", sizes[name]) for name in ("gate_proj", "up_proj", "down_proj")]
    return specs


def weight_specs(shape: ModelShape) -> list[Spec]:
    """Names (Hugging Face Llama) and shapes of every array of the base model."""
    specs: list[Spec] = [("model.embed_tokens.weight", (shape.vocab, shape.dim))]
    for layer in range(shape.layers):
        specs += _layer_specs(shape, layer)
    specs.append(("model.norm.weight", (shape.dim,)))
    if not shape.tied:
        specs.append(("lm_head.weight", (shape.vocab, shape.dim)))
    return specs


class BaseWeights:
    """All arrays of a base model, or their gradients.

    Attributes:
        shape: the model's sizes.
        params: arrays by Hugging Face name.
        embed: ``[vocab, dim]``.
        head: ``[vocab, dim]``, the same array as ``embed`` when tied.
        final_norm: ``[dim]``.
        layers: fused views per block.
        name: what the model is called, where that is known.
    """

    def __init__(self, shape: ModelShape, params: FlatParams) -> None:
        self.shape = shape
        self.name = ""
        self.params = params
        self.embed = params["model.embed_tokens.weight"]
        self.head = self.embed if shape.tied else params["lm_head.weight"]
        self.final_norm = params["model.norm.weight"]
        self.layers = [self._layer(index) for index in range(shape.layers)]

    @classmethod
    def allocate(
        cls, shape: ModelShape, dtype: DTypeLike = np.float32, *, zero: bool = False, xp: Arrays = NUMPY
    ) -> BaseWeights:
        """Uninitialised (or zero) arrays for ``shape``; fill them through ``params``."""
        return cls(shape, FlatParams(weight_specs(shape), dtype, zero=zero, xp=xp))

    @classmethod
    def random(cls, shape: ModelShape, seed: int, dtype: DTypeLike = np.float32) -> BaseWeights:
        """GPT-2 style start: N(0, 0.02), residual outputs scaled by ``1/sqrt(2 layers)``, norms 1, biases 0."""
        weights = cls.allocate(shape, dtype)
        rng = np.random.default_rng(seed)
        for name, array in weights.params.items():
            if name.endswith("bias"):
                array[...] = 0
            elif array.ndim == 1:
                array[...] = 1
            else:
                residual = "o_proj" in name or "down_proj" in name
                scale = 0.02 / (np.sqrt(2 * shape.layers) if residual else 1)
                array[...] = rng.normal(0, scale, array.shape)
        return weights

    def on(self, xp: Arrays) -> BaseWeights:
        """These where another table computes; the same object if that is this one's."""
        if xp is self.params.xp:
            return self
        moved = BaseWeights(self.shape, self.params.on(xp))
        moved.name = self.name
        return moved

    def like(self, *, zero: bool = False) -> BaseWeights:
        """New arrays for a model of the same shape."""
        return BaseWeights(self.shape, self.params.like(zero=zero))

    def copy(self, flat: Array | None = None) -> BaseWeights:
        """Independent copy, without the name; of the numbers ``flat`` where they are given."""
        other = self.like()
        other.params.flat[...] = self.params.flat if flat is None else flat
        return other

    def _layer(self, index: int) -> LayerWeights:
        prefix = f"model.layers.{index}."

        def fused(group: str, kind: str = "weight") -> Array:
            return self.params.fused([f"{prefix}{PARENT[name]}.{name}.{kind}" for name in FUSED[group]])

        qk_norm = self.shape.qk_norm
        return LayerWeights(
            attn_norm=self.params[prefix + "input_layernorm.weight"],
            qkv=fused("qkv"),
            qkv_bias=fused("qkv", "bias") if self.shape.qkv_bias else None,
            q_norm=self.params[prefix + "self_attn.q_norm.weight"] if qk_norm else None,
            k_norm=self.params[prefix + "self_attn.k_norm.weight"] if qk_norm else None,
            o=fused("o"),
            mlp_norm=self.params[prefix + "post_attention_layernorm.weight"],
            gate_up=fused("gate_up"),
            down=fused("down"),
        )

    def require_finite(self, source: str) -> None:
        """Raise ``ValueError`` naming the first array of ``source`` that holds NaN or infinity."""
        for name, array in self.params.items():
            with np.errstate(invalid="ignore"):  # both infinities add up to NaN
                total = array.sum(dtype=np.float64)
            if not np.isfinite(total) and not np.isfinite(array).all():
                raise ValueError(f"{source}: weights {name} hold NaN or infinity; the file is damaged")
