"""The numbers that define one Llama-family model."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class ModelShape:
    """Sizes and switches of a decoder-only transformer of the Llama family.

    Attributes:
        dim: width of the residual stream.
        layers: number of transformer blocks.
        heads: query heads.
        kv_heads: key and value heads; divides ``heads`` (grouped-query attention).
        head_dim: width of one head.
        hidden: width of the gated MLP.
        vocab: number of token ids.
        rope_theta: base of the rotary position embedding.
        rope_factors: ``[head_dim / 2]`` divisors of the rotary frequencies, where a model stretches its positions.
        norm_eps: epsilon of every RMS norm.
        tied: the output head is the embedding matrix.
        qkv_bias: q, k and v projections add a bias (Qwen2).
        qk_norm: q and k heads are RMS-normalised before the rotation (Qwen3).
        window: a token sees itself and the ``window - 1`` before it, in every block; None sees all (Mistral).
        max_context: longest sequence computed, in tokens.
    """

    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    rope_theta: float = 10000.0
    rope_factors: tuple[float, ...] | None = None
    norm_eps: float = 1e-5
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    max_context: int = 2048

    def __attrs_post_init__(self) -> None:
        for name in ("dim", "layers", "heads", "kv_heads", "head_dim", "hidden", "vocab", "max_context"):
            if getattr(self, name) < 1:
                raise ValueError(f"model shape: {name} must be at least 1, got {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"model shape: {self.heads} heads are not a multiple of {self.kv_heads} kv heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"model shape: head_dim must be even for rotary positions, got {self.head_dim}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"model shape: window must be at least 1, got {self.window}")
        factors = self.rope_factors
        if factors is not None and (len(factors) != self.head_dim // 2 or min(factors) <= 0):
            raise ValueError(
                f"model shape: rope_factors must be {self.head_dim // 2} positive numbers, got {factors}"
            )

    @property
    def q_width(self) -> int:
        """Columns of the query part of the fused projection."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key part (and of the value part)."""
        return self.kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Columns of the fused q, k, v projection."""
        return self.q_width + 2 * self.kv_width

    @property
    def layer_linear_parameters(self) -> int:
        """Parameters of the seven linears of one block."""
        return self.dim * (self.qkv_width + self.q_width + 3 * self.hidden)

    @property
    def activation_width(self) -> int:
        """Numbers that one block keeps of a row for the backward pass, besides attention's probabilities."""
        normed_heads = self.q_width + self.kv_width if self.qk_norm else 0
        return 4 * self.dim + 2 * self.q_width + self.qkv_width + 4 * self.hidden + normed_heads

    @property
    def linear_parameters(self) -> int:
        """Parameters that a token is multiplied with: all linears and the output head."""
        return self.layers * self.layer_linear_parameters + self.vocab * self.dim

    @property
    def parameters(self) -> int:
        """All parameters, norms, biases and an untied head included."""
        per_layer = self.layer_linear_parameters + 2 * self.dim
        per_layer += self.qkv_width if self.qkv_bias else 0
        per_layer += 2 * self.head_dim if self.qk_norm else 0
        embeddings = self.vocab * self.dim * (1 if self.tied else 2)
        return self.layers * per_layer + embeddings + self.dim

    def linear_sizes(self) -> dict[str, tuple[int, int]]:
        """``{linear name: (outputs, inputs)}`` of the seven linears of one block."""
        return {
            "q_proj": (self.q_width, self.dim),
            "k_proj": (self.kv_width, self.dim),
            "v_proj": (self.kv_width, self.dim),
            "o_proj": (self.dim, self.q_width),
            "gate_proj": (self.hidden, self.dim),
            "up_proj": (self.hidden, self.dim),
            "down_proj": (self.dim, self.hidden),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return attrs.asdict(self)


#: Linears of one block that read the same input, and are computed by one matrix product.
FUSED: dict[str, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}

#: The seven linears of a block, in the order of their parameters.
LINEARS: tuple[str, ...] = tuple(name for names in FUSED.values() for name in names)

#: Where a linear lives inside a Hugging Face Llama block.
PARENT: dict[str, str] = {
    name: "self_attn" if fused in ("qkv", "o") else "mlp" for fused, names in FUSED.items() for name in names
}
