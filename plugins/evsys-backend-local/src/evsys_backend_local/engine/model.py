"""The transformer: forward and hand-written backward of a Llama-family model over a pack of rows.

The residual stream is ``[rows, dim]``. Every layer's inputs that the backward pass needs stay in the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evsys_backend_local.engine import ops
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.attention import Attention, Past
from evsys_backend_local.engine.lora import GroupLora, LoraGrads, LoraParams
from evsys_backend_local.engine.packing import Pack
from evsys_backend_local.engine.panels import ModelPanels
from evsys_backend_local.engine.weights import BaseWeights, LayerWeights
from evsys_backend_local.engine.workspace import Workspace

#: Receives (layer, keys ``[rows, kv_heads, head_dim]``, values of the same shape) during a forward pass.
KvSink = Callable[[int, Array, Array], None]

#: Probabilities of all layers of a pack are kept for the backward pass up to this many bytes, else recomputed.
KEEP_PROBABILITIES_BYTES = 160 << 20


class Forward:
    """One pass over a pack. Call :meth:`run`, then, if built with ``keep``, :meth:`backward` once.

    Args:
        weights: the base model.
        lora: its adapter, or None.
        pack: rows to compute.
        rope: cosines and sines ``[positions, head_dim / 2]``.
        ws: scratch memory; nothing else may use it until the backward pass is done.
        keep: remember what the backward pass needs.
        panels: the base model's matrices in panels, if they are.
        past: keys and values of what the pack's rows follow; not with ``keep``.
    """

    def __init__(
        self,
        weights: BaseWeights,
        lora: LoraParams | None,
        pack: Pack,
        rope: tuple[Array, Array],
        ws: Workspace,
        *,
        keep: bool,
        panels: ModelPanels | None = None,
        past: Past | None = None,
    ) -> None:
        if keep and past is not None:
            raise ValueError("there is no way back through keys and values that were computed before")
        self.weights = weights
        self.panels = panels
        self.shape = weights.shape
        self.lora = lora
        self.pack = pack
        self.ws = ws
        self.keep = keep
        xp = self.xp = ws.xp
        self.tokens = xp.put(pack.tokens)
        positions = xp.put(pack.positions)
        self.cos, self.sin = (table[positions][:, None] for table in rope)
        scores = sum((block.end - block.start) * block.keys for block in pack.blocks)
        size = scores * self.shape.heads * self.shape.layers * ws.dtype.itemsize
        self.attention = Attention(
            self.shape, pack, ws, keep=keep and size <= KEEP_PROBABILITIES_BYTES, past=past
        )
        self._inverse: list[tuple[Array, Array]] = []
        self._qk_inverse: list[tuple[Array, Array]] = []

    def _take(self, layer: int, name: str, *shape: int) -> Array:
        """Memory of one layer; without a backward pass two sets are enough."""
        return self.ws.take((layer if self.keep else layer % 2, name), *shape)

    def run(self, kv_sink: KvSink | None = None) -> Array:
        """Compute all layers; returns the residual stream ``[rows, dim]`` before the final norm."""
        return self._layers(self.weights.layers, kv_sink)

    def keys(self, kv_sink: KvSink) -> None:
        """Compute keys and values alone: of the last layer nothing else is needed."""
        last = self.shape.layers - 1
        self._qkv(last, self.weights.layers[last], self._layers(self.weights.layers[:last], kv_sink), kv_sink)

    def _layers(self, layers: Sequence[LayerWeights], kv_sink: KvSink | None) -> Array:
        rows, dim = self.pack.rows, self.shape.dim
        x = self._take(0, "x0", rows, dim)
        self.xp.take(self.weights.embed, self.tokens, out=x)
        for layer, weights in enumerate(layers):
            middle = self._attention_half(layer, weights, x, kv_sink)
            x = self._mlp_half(layer, weights, middle)
        return x

    def _attention_half(self, layer: int, weights: LayerWeights, x: Array, kv_sink: KvSink | None) -> Array:
        shape, rows = self.shape, self.pack.rows
        qkv, inverse = self._qkv(layer, weights, x, kv_sink)
        attended = self._take(layer, "attended", rows, shape.q_width)
        self.attention.forward(layer, qkv, attended.reshape(rows, shape.heads, shape.head_dim))
        middle = self._take(layer, "x1", rows, shape.dim)
        self._linear(layer, "o", attended, weights.o, middle)
        middle += x
        if self.keep:
            self._inverse.append((inverse, inverse))
        return middle

    def _qkv(
        self, layer: int, weights: LayerWeights, x: Array, kv_sink: KvSink | None
    ) -> tuple[Array, Array]:
        """Rotated ``[rows, heads + 2 * kv_heads, head_dim]``, and the inverse root of the norm before it."""
        shape, rows = self.shape, self.pack.rows
        normed = self._take(layer, "h1", rows, shape.dim)
        inverse = ops.rms_norm(x, weights.attn_norm, shape.norm_eps, normed)
        flat = self._take(layer, "qkv", rows, shape.qkv_width)
        self._linear(layer, "qkv", normed, weights.qkv, flat)
        if weights.qkv_bias is not None:
            flat += weights.qkv_bias
        qkv = flat.reshape(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        self._norm_heads(layer, weights, qkv)
        ops.rotate(qkv[:, : shape.heads + shape.kv_heads], self.cos, self.sin)
        if kv_sink is not None:
            split = shape.heads + shape.kv_heads
            kv_sink(layer, qkv[:, shape.heads : split], qkv[:, split:])
        return qkv, inverse

    def _norm_heads(self, layer: int, weights: LayerWeights, qkv: Array) -> None:
        """RMS norm of each query and key head (Qwen3), in place."""
        if weights.q_norm is None or weights.k_norm is None:
            return
        heads, kv = self.shape.heads, self.shape.kv_heads
        raw = self._take(layer, "qk_raw", *qkv[:, : heads + kv].shape)
        raw[...] = qkv[:, : heads + kv]
        eps = self.shape.norm_eps
        q_inverse = ops.rms_norm(raw[:, :heads], weights.q_norm, eps, qkv[:, :heads])
        k_inverse = ops.rms_norm(raw[:, heads:], weights.k_norm, eps, qkv[:, heads : heads + kv])
        if self.keep:
            self._qk_inverse.append((q_inverse, k_inverse))

    def _mlp_half(self, layer: int, weights: LayerWeights, x: Array) -> Array:
        shape, rows = self.shape, self.pack.rows
        normed = self._take(layer, "h2", rows, shape.dim)
        inverse = ops.rms_norm(x, weights.mlp_norm, shape.norm_eps, normed)
        gate_up = self._take(layer, "gate_up", rows, 2 * shape.hidden)
        self._linear(layer, "gate_up", normed, weights.gate_up, gate_up)
        sigmoid = self._take(layer, "sigmoid", rows, shape.hidden)
        active = self._take(layer, "active", rows, shape.hidden)
        ops.silu_gate(gate_up[:, : shape.hidden], gate_up[:, shape.hidden :], sigmoid, active)
        out = self._take(layer + 1, "x0", rows, shape.dim)
        self._linear(layer, "down", active, weights.down, out)
        out += x
        if self.keep:
            self._inverse[layer] = (self._inverse[layer][0], inverse)
        return out

    def _group(self, layer: int, name: str) -> GroupLora | None:
        return None if self.lora is None else self.lora.layers[layer].get(name)

    def _linear(self, layer: int, name: str, x: Array, weight: Array, out: Array) -> None:
        """``out = x W^T`` plus the adapter's part."""
        if self.panels is None:
            self.xp.matmul(x, weight.T, out=out)
        else:
            self.panels.layers[layer][name].multiply(x, out)
        group = self._group(layer, name)
        if group is not None:
            low = self._take(layer, name + "_low", x.shape[0], group.a.shape[0])
            self.xp.matmul(x, group.a.T, out=low)
            extra = self.ws.take("lora", *out.shape)
            self.xp.matmul(low, group.b.T, out=extra)
            out += extra

    def backward(self, d_x: Array, lora_grads: LoraGrads | None, full_grads: BaseWeights | None) -> None:
        """Add the gradients that follow from ``d_x``, the gradient of what :meth:`run` returned (overwritten).

        Args:
            d_x: ``[rows, dim]``.
            lora_grads: accumulator of the adapter, if it is trained.
            full_grads: accumulator of all base weights, if they are trained.
        """
        for layer in range(self.shape.layers - 1, -1, -1):
            weights = self.weights.layers[layer]
            full = None if full_grads is None else full_grads.layers[layer]
            self._mlp_backward(layer, weights, d_x, lora_grads, full)
            self._attention_backward(layer, weights, d_x, lora_grads, full)
        if full_grads is not None:
            self.xp.add_at(full_grads.embed, self.pack.tokens, d_x)

    def _mlp_backward(
        self,
        layer: int,
        weights: LayerWeights,
        d_x: Array,
        grads: LoraGrads | None,
        full: LayerWeights | None,
    ) -> None:
        shape, rows = self.shape, self.pack.rows
        gate_up = self._take(layer, "gate_up", rows, 2 * shape.hidden)
        sigmoid = self._take(layer, "sigmoid", rows, shape.hidden)
        active = self._take(layer, "active", rows, shape.hidden)
        normed = self._take(layer, "h2", rows, shape.dim)
        d_active = self.ws.take("d_active", rows, shape.hidden)
        full_down = None if full is None else full.down
        self._linear_backward(
            layer, "down", active, weights.down, d_x, d_x=d_active, grads=grads, full=full_down
        )
        d_gate_up = self.ws.take("d_gate_up", rows, 2 * shape.hidden)
        gate, up = gate_up[:, : shape.hidden], gate_up[:, shape.hidden :]
        d_gate, d_up = d_gate_up[:, : shape.hidden], d_gate_up[:, shape.hidden :]
        ops.silu_gate_backward(d_active, gate, up, sigmoid, d_gate=d_gate, d_up=d_up, scratch=active)
        d_normed = self.ws.take("d_normed", rows, shape.dim)
        full_gate_up = None if full is None else full.gate_up
        self._linear_backward(
            layer, "gate_up", normed, weights.gate_up, d_gate_up, d_x=d_normed, grads=grads, full=full_gate_up
        )
        x = self._take(layer, "x1", rows, shape.dim)
        self._norm_backward(
            d_normed,
            x,
            self._inverse[layer][1],
            weights.mlp_norm,
            full=None if full is None else full.mlp_norm,
            d_x=d_x,
        )

    def _attention_backward(
        self,
        layer: int,
        weights: LayerWeights,
        d_x: Array,
        grads: LoraGrads | None,
        full: LayerWeights | None,
    ) -> None:
        shape, rows = self.shape, self.pack.rows
        attended = self._take(layer, "attended", rows, shape.q_width)
        qkv = self._take(layer, "qkv", rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        normed = self._take(layer, "h1", rows, shape.dim)
        d_attended = self.ws.take("d_attended", rows, shape.q_width)
        full_o = None if full is None else full.o
        self._linear_backward(layer, "o", attended, weights.o, d_x, d_x=d_attended, grads=grads, full=full_o)
        d_qkv = self.ws.take("d_qkv", *qkv.shape)
        by_head = (rows, shape.heads, shape.head_dim)
        self.attention.backward(layer, qkv, attended.reshape(by_head), d_attended.reshape(by_head), d_qkv)
        ops.rotate(d_qkv[:, : shape.heads + shape.kv_heads], self.cos, self.sin, inverse=True)
        self._norm_heads_backward(layer, weights, d_qkv, full)
        d_flat = d_qkv.reshape(rows, shape.qkv_width)
        if full is not None and full.qkv_bias is not None:
            full.qkv_bias[...] += d_flat.sum(axis=0)
        if layer == 0 and full is None:
            # Nothing below is trained: the gradient of the first layer's input has no use.
            self._linear_backward(layer, "qkv", normed, weights.qkv, d_flat, d_x=None, grads=grads, full=None)
            return
        d_normed = self.ws.take("d_normed", rows, shape.dim)
        full_qkv = None if full is None else full.qkv
        self._linear_backward(
            layer, "qkv", normed, weights.qkv, d_flat, d_x=d_normed, grads=grads, full=full_qkv
        )
        x = self._take(layer, "x0", rows, shape.dim)
        self._norm_backward(
            d_normed,
            x,
            self._inverse[layer][0],
            weights.attn_norm,
            full=None if full is None else full.attn_norm,
            d_x=d_x,
        )

    def _norm_heads_backward(
        self, layer: int, weights: LayerWeights, d_qkv: Array, full: LayerWeights | None
    ) -> None:
        if weights.q_norm is None or weights.k_norm is None:
            return
        heads, kv = self.shape.heads, self.shape.kv_heads
        raw = self._take(layer, "qk_raw", self.pack.rows, heads + kv, self.shape.head_dim)
        for part, gain, inverse, name in (
            (slice(0, heads), weights.q_norm, self._qk_inverse[layer][0], "q_norm"),
            (slice(heads, heads + kv), weights.k_norm, self._qk_inverse[layer][1], "k_norm"),
        ):
            gradient, x = d_qkv[:, part], raw[:, part]
            if full is not None:
                getattr(full, name)[...] += (gradient * x * inverse).sum(axis=(0, 1))
            ops.rms_norm_backward(gradient, x, inverse, gain, gradient)

    @staticmethod
    def _norm_backward(
        d_normed: Array, x: Array, inverse: Array, gain: Array, *, full: Array | None, d_x: Array
    ) -> None:
        """Add to ``d_x`` what flows through a norm; uses up ``d_normed``."""
        if full is not None:
            full += (d_normed * x * inverse).sum(axis=0)
        ops.rms_norm_backward(d_normed, x, inverse, gain, d_normed)
        d_x += d_normed

    def _linear_backward(
        self,
        layer: int,
        name: str,
        x: Array,
        weight: Array,
        dy: Array,
        *,
        d_x: Array | None,
        grads: LoraGrads | None,
        full: Array | None,
    ) -> None:
        """Gradient of :meth:`_linear`: writes ``d_x`` unless None, adds to the accumulators."""
        if d_x is not None:
            self.xp.matmul(dy, weight, out=d_x)
        group = self._group(layer, name)
        if group is not None:
            low = self._take(layer, name + "_low", x.shape[0], group.a.shape[0])
            d_low = dy @ group.b
            if d_x is not None:
                extra = self.ws.take("lora", *d_x.shape)
                self.xp.matmul(d_low, group.a, out=extra)
                d_x += extra
            if grads is not None:
                grads.add(layer, name, x=x, low=low, dy=dy, d_low=d_low)
        if full is not None:
            full += dy.T @ x
