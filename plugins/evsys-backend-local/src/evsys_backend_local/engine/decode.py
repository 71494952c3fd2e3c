"""Token-by-token decoding of many samples at once, with the prompts' keys and values shared by their samples.

Samples are in slots ``[groups, slots]``; the slots of one group continue the same prompt and read one copy of its
keys and values. When enough samples have finished, the others move together.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from evsys_backend_local.engine import ops
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.lora import GroupLora, LoraParams
from evsys_backend_local.engine.packing import MASKED, IntArray
from evsys_backend_local.engine.panels import ModelPanels
from evsys_backend_local.engine.weights import BaseWeights, LayerWeights
from evsys_backend_local.engine.workspace import Workspace

#: Tokens of a sample that there is room for at the start.
FIRST_ROOM = 32

#: Keys and values of one wave of requests take at most this many bytes, unless one request alone takes more.
KV_BYTES = 256 << 20

#: Rearranging waits until this share of the slots is idle.
IDLE_SHARE = 0.25


@attrs.frozen(kw_only=True)
class PromptCache:
    """Keys and values of prompts, right-padded to the longest.

    Attributes:
        keys: per layer ``[prompts, kv_heads, longest, head_dim]``, rotated.
        values: the same for the values.
        lengths: ``[prompts]`` real lengths.
    """

    keys: list[Array]
    values: list[Array]
    lengths: IntArray


@attrs.frozen(kw_only=True)
class Slots:
    """The assignment of samples to slots.

    Attributes:
        prompts: ``[groups]`` prompt of each group.
        samples: ``[groups, slots]`` sample of each slot, -1 for an empty slot.
    """

    prompts: IntArray
    samples: IntArray


def arrange(prompt_of: IntArray, samples: IntArray) -> Slots:
    """Put samples into groups of equal size, with few idle slots and few copies of a prompt.

    Args:
        prompt_of: ``[all samples]`` prompt of each sample.
        samples: the samples that take part, ascending.
    """
    prompts, counts = np.unique(prompt_of[samples], return_counts=True)
    # A group costs about a tenth of a slot (its prompt is read again), an idle slot as much as a busy one.
    best = min(
        (int(size) for size in np.unique(counts)),
        key=lambda size: float((-(-counts // size)).sum() * (size + 0.1)),
    )
    group_prompts: list[int] = []
    rows: list[IntArray] = []
    for prompt in prompts:
        own = samples[prompt_of[samples] == prompt]
        for start in range(0, len(own), best):
            row = np.full(best, -1, np.int64)
            part = own[start : start + best]
            row[: len(part)] = part
            group_prompts.append(int(prompt))
            rows.append(row)
    return Slots(prompts=np.asarray(group_prompts, np.int64), samples=np.stack(rows))


class Decoder:
    """State of samples that all have generated the same number of tokens.

    Args:
        weights: base model.
        lora: adapter or None.
        cache: the prompts.
        prompt_of: ``[samples]`` prompt of each sample.
        capacity: most tokens a sample can generate.
        rope: cosines and sines.
        ws: scratch memory.
        panels: the base model's matrices in panels, if they are.
    """

    def __init__(
        self,
        weights: BaseWeights,
        lora: LoraParams | None,
        cache: PromptCache,
        prompt_of: IntArray,
        *,
        capacity: int,
        rope: tuple[Array, Array],
        ws: Workspace,
        panels: ModelPanels | None = None,
    ) -> None:
        self.weights = weights
        self.panels = panels
        self.shape = weights.shape
        self.lora = lora
        self.cache = cache
        self.prompt_of = prompt_of
        self.capacity = capacity
        self.rope = rope
        self.ws = ws
        self.xp = ws.xp
        self.generated = 0
        self.slots = arrange(prompt_of, np.arange(len(prompt_of)))
        self._own: list[tuple[Array, Array]] = []
        self._prompts: list[tuple[Array, Array]] = []
        self._room = 0
        self._gather_prompts()

    def _gather_prompts(self) -> None:
        """Copy the prompts' keys and values to the groups, cut to the longest prompt in use."""
        prompts = self.slots.prompts
        lengths = self.cache.lengths[prompts]
        longest = int(lengths.max())
        if np.array_equal(prompts, np.arange(len(self.cache.lengths))):
            self._prompts = list(zip(self.cache.keys, self.cache.values, strict=True))
        else:
            chosen = self.xp.put(prompts)
            self._prompts = [
                (keys[chosen, :, :longest], values[chosen, :, :longest])
                for keys, values in zip(self.cache.keys, self.cache.values, strict=True)
            ]
        self._lengths = lengths
        self._mask_prompts()

    def _mask_prompts(self) -> None:
        """Additive mask ``[groups, 1, 1, longest]`` of prompt keys that aren't there or lie before the window."""
        keys, lengths = np.arange(self._prompts[0][0].shape[2]), self._lengths[:, None]
        hidden = keys >= lengths
        if self.shape.window is not None:
            hidden |= keys <= lengths + self.generated - self.shape.window
        self._hidden = None
        if hidden.any():
            self._hidden = self.xp.put(np.where(hidden, MASKED, 0).astype(self.ws.dtype)[:, None, None])

    def retire(self, alive: IntArray) -> bool:
        """Keep only the samples ``alive`` (ascending); returns whether they moved."""
        slots = self.slots.samples
        if not len(alive) or len(alive) > (1 - IDLE_SHARE) * slots.size:
            return False
        old_place = np.zeros(len(self.prompt_of), np.int64)
        flat = slots.reshape(-1)
        old_place[flat[flat >= 0]] = np.flatnonzero(flat >= 0)
        self.slots = arrange(self.prompt_of, alive)
        moved = self.slots.samples.reshape(-1)
        # An idle slot copies the first sample of its group: any valid numbers will do.
        first = np.repeat(self.slots.samples[:, 0], self.slots.samples.shape[1])
        source = self.xp.put(old_place[np.where(moved >= 0, moved, first)])
        self._own = [(keys[source], values[source]) for keys, values in self._own]
        self._gather_prompts()
        return True

    def _make_room(self) -> None:
        """Grow the samples' own keys and values by doubling, a layer at a time so that one old copy lives at most."""
        if self.generated < self._room:
            return
        room = min(max(FIRST_ROOM, 2 * self._room), self.capacity)
        shape, fresh = self.shape, not self._own
        size = (self.slots.samples.size, shape.kv_heads, room, shape.head_dim)
        for layer in range(shape.layers):
            keys, values = (self.xp.empty(size, self.ws.dtype) for _ in range(2))
            if fresh:
                self._own.append((keys, values))
                continue
            for new, old in zip((keys, values), self._own[layer], strict=True):
                new[:, :, : self._room] = old
            self._own[layer] = (keys, values)
        self._room = room

    def step(self, tokens: IntArray) -> Array:
        """Feed one token to each slot; returns logits ``[groups * slots, vocab]`` (valid until the next step)."""
        self._make_room()
        shape, ws = self.shape, self.ws
        if shape.window is not None:
            self._mask_prompts()
        rows = self.slots.samples.size
        per_group = self.slots.samples.shape[1]
        positions = np.repeat(self.cache.lengths[self.slots.prompts] + self.generated, per_group)
        # Who has finished is there until slots are arranged again, perhaps beyond the end of its context.
        at = self.xp.put(np.minimum(positions, len(self.rope[0]) - 1))
        cos, sin = self.rope[0][at][:, None], self.rope[1][at][:, None]
        x = ws.take("decode_x", rows, shape.dim)
        self.xp.take(self.weights.embed, self.xp.put(tokens), out=x)
        normed = ws.take("decode_normed", rows, shape.dim)
        for layer, weights in enumerate(self.weights.layers):
            ops.rms_norm(x, weights.attn_norm, shape.norm_eps, normed)
            attended = self._attend(layer, self._qkv(layer, weights, normed, cos, sin))
            x += self._linear(layer, "o", attended, weights.o)
            ops.rms_norm(x, weights.mlp_norm, shape.norm_eps, normed)
            gate_up = self._linear(layer, "gate_up", normed, weights.gate_up)
            sigmoid = ws.take("decode_sigmoid", rows, shape.hidden)
            active = ws.take("decode_active", rows, shape.hidden)
            ops.silu_gate(gate_up[:, : shape.hidden], gate_up[:, shape.hidden :], sigmoid, active)
            x += self._linear(layer, "down", active, weights.down)
        self.generated += 1
        return final_logits(self.weights, x, ws, self.panels)

    def _qkv(self, layer: int, weights: LayerWeights, normed: Array, cos: Array, sin: Array) -> Array:
        """Rotated ``[rows, heads + 2 * kv_heads, head_dim]``; appends keys and values to the samples' own."""
        shape = self.shape
        heads, kv = shape.heads, shape.kv_heads
        flat = self._linear(layer, "qkv", normed, weights.qkv)
        if weights.qkv_bias is not None:
            flat += weights.qkv_bias
        qkv = flat.reshape(len(flat), heads + 2 * kv, shape.head_dim)
        if weights.q_norm is not None and weights.k_norm is not None:
            ops.rms_norm(self.xp.copy(qkv[:, :heads]), weights.q_norm, shape.norm_eps, qkv[:, :heads])
            keys = qkv[:, heads : heads + kv]
            ops.rms_norm(self.xp.copy(keys), weights.k_norm, shape.norm_eps, keys)
        ops.rotate(qkv[:, : heads + kv], cos, sin)
        own_keys, own_values = self._own[layer]
        own_keys[:, :, self.generated] = qkv[:, heads : heads + kv]
        own_values[:, :, self.generated] = qkv[:, heads + kv :]
        return qkv

    def _attend(self, layer: int, qkv: Array) -> Array:
        """Softmax over the prompt's and the sample's own keys together, without joining them in memory."""
        xp, shape, now = self.xp, self.shape, self.generated + 1
        kv, width = shape.kv_heads, shape.head_dim
        groups, per_group = self.slots.samples.shape
        share = shape.heads // kv
        rows = groups * per_group
        queries = qkv[:, : shape.heads].reshape(rows, kv, share, width) * width**-0.5
        by_group = queries.reshape(groups, per_group, kv, share, width).swapaxes(1, 2)
        by_group = by_group.reshape(groups, kv, per_group * share, width)
        prompt_keys, prompt_values = self._prompts[layer]
        oldest = 0 if shape.window is None else max(0, now - shape.window)
        own_keys, own_values = (part[:, :, oldest:now] for part in self._own[layer])
        prompt_scores = xp.matmul(by_group, prompt_keys.swapaxes(2, 3))
        if self._hidden is not None:
            prompt_scores += self._hidden
        own_scores = xp.matmul(queries, own_keys.swapaxes(2, 3))

        def to_group(x: Array) -> Array:
            split = x.reshape(groups, per_group, kv, share, 1).swapaxes(1, 2)
            return split.reshape(groups, kv, per_group * share, 1)

        def to_row(x: Array) -> Array:
            split = x.reshape(groups, kv, per_group, share, x.shape[-1]).swapaxes(1, 2)
            return split.reshape(rows, kv, share, x.shape[-1])

        top = xp.maximum(
            to_row(xp.amax(prompt_scores, axis=-1, keepdims=True)),
            xp.amax(own_scores, axis=-1, keepdims=True),
        )
        prompt_scores -= to_group(top)
        xp.exp(prompt_scores, out=prompt_scores)
        own_scores -= top
        xp.exp(own_scores, out=own_scores)
        total = to_row(prompt_scores.sum(axis=-1, keepdims=True)) + own_scores.sum(axis=-1, keepdims=True)
        mixed: Array = to_row(xp.matmul(prompt_scores, prompt_values)) + xp.matmul(own_scores, own_values)
        mixed /= total
        return mixed.reshape(rows, shape.q_width)

    def _linear(self, layer: int, name: str, x: Array, weight: Array) -> Array:
        """``x W^T`` plus the adapter's part."""
        out = self.ws.take(("decode", name), len(x), len(weight))
        if self.panels is None:
            self.xp.matmul(x, weight.T, out=out)
        else:
            self.panels.layers[layer][name].multiply(x, out)
        group: GroupLora | None = None if self.lora is None else self.lora.layers[layer].get(name)
        if group is not None:
            out += (x @ group.a.T) @ group.b.T
        return out


def final_logits(weights: BaseWeights, x: Array, ws: Workspace, panels: ModelPanels | None = None) -> Array:
    """Logits ``[rows, vocab]`` from the residual stream ``[rows, dim]``."""
    normed = ws.take("final_normed", *x.shape)
    ops.rms_norm(x, weights.final_norm, weights.shape.norm_eps, normed)
    logits = ws.take("final_logits", len(x), weights.shape.vocab)
    if panels is None:
        ws.xp.matmul(normed, weights.head.T, out=logits)
    else:
        panels.head.multiply(normed, logits)
    return logits


def split_by_memory(prompts: Sequence[int], answers: Sequence[int], most: int) -> list[list[int]]:
    """Waves of requests whose keys and values are those of at most ``most`` tokens (at least one request each).

    Prompts are padded to the longest of their wave: where not all fit at once, those of like lengths go together.

    Args:
        prompts: tokens of each request's prompt.
        answers: tokens that all its samples may get.
        most: tokens of a wave.
    """
    everyone = range(len(prompts))
    if len(prompts) * max(prompts, default=0) + sum(answers) <= most:
        return [list(everyone)] if prompts else []
    waves: list[list[int]] = []
    new = 0
    for index in sorted(everyone, key=prompts.__getitem__):
        new += answers[index]
        if not waves or (len(waves[-1]) + 1) * prompts[index] + new > most:
            waves.append([])
            new = answers[index]
        waves[-1].append(index)
    return [sorted(wave) for wave in waves]
