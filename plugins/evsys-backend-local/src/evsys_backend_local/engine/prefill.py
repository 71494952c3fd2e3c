"""Prompts through the packed forward pass: whole chunks first, of which some may be kept from earlier, then the
rest.

A chunk is a pass of its own, see :mod:`~evsys_backend_local.engine.prefix_cache`. The rest of the prompts, at least
one token and at most a chunk of each, is computed together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.decode import PromptCache
from evsys_backend_local.engine.head import Head
from evsys_backend_local.engine.model import Forward
from evsys_backend_local.engine.packing import Block, IntArray, Pack, pack_sequences
from evsys_backend_local.engine.panels import ModelPanels
from evsys_backend_local.engine.prefix_cache import Key, PrefixCache, digests
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.engine.workspace import Workspace


@attrs.frozen(kw_only=True)
class Prefilled:
    """Prompts ready to be continued.

    Attributes:
        cache: their keys and values.
        last: ``[prompts, dim]`` residual stream at their last tokens.
        logprobs: ``[tokens]`` of each prompt that was to be scored; NaN for the first token.
    """

    cache: PromptCache
    last: Array
    logprobs: dict[int, NDArray[np.float32]]


class Prefill:
    """Computes prompts under one model.

    Args:
        model: weights; chunks are kept from one call to the next for a snapshot, not for what is being trained.
        rope: cosines and sines.
        ws: scratch memory.
        prefixes: what is kept.
        threads: BLAS threads that multiply.
        max_rows: rows of a pack.
        block_rows: query rows of an attention block.
        abort: ends it between packs.
        panels: the base model's matrices in panels, if they are.
    """

    def __init__(
        self,
        model: Trainable | Snapshot,
        rope: tuple[Array, Array],
        ws: Workspace,
        *,
        prefixes: PrefixCache,
        threads: int,
        max_rows: int,
        block_rows: int,
        abort: Abort,
        panels: ModelPanels | None,
    ) -> None:
        self.model = model
        self.shape = model.weights.shape
        self.rope = rope
        self.ws = ws
        self.prefixes = prefixes
        self.chunk = prefixes.chunk
        self.name = prefixes.name(model) if isinstance(model, Snapshot) else None
        self.threads = threads
        self.max_rows = max_rows
        self.block_rows = block_rows
        self.abort = abort
        self.panels = panels
        #: What this call computed or took: chunks, and the residual stream of those on which scores depend.
        self._chunks: dict[bytes, Array] = {}
        self._streams: dict[bytes, Array] = {}

    def run(self, prompts: Sequence[IntArray], scored: Sequence[bool]) -> Prefilled:
        """Compute prompts of at least one token; ``scored`` says of which the tokens' logprobs are wanted."""
        shape, dtype, xp = self.shape, self.ws.dtype, self.ws.xp
        lengths = np.asarray([len(prompt) for prompt in prompts], np.int64)
        size = (len(prompts), shape.kv_heads, int(lengths.max()), shape.head_dim)
        keys = [xp.zeros(size, dtype) for _ in range(shape.layers)]
        values = [xp.zeros(size, dtype) for _ in range(shape.layers)]
        last = xp.empty((len(prompts), shape.dim), dtype)
        logprobs: dict[int, NDArray[np.float32]] = {}
        paths = [self._path(prompt, wanted) for prompt, wanted in zip(prompts, scored, strict=True)]
        for member, path in enumerate(paths):
            for place, chunk in enumerate(self._chunks[name] for name in path):
                at = slice(place * self.chunk, (place + 1) * self.chunk)
                for layer, both in enumerate(chunk):
                    keys[layer][member, :, at] = both[:, : shape.kv_heads].swapaxes(0, 1)
                    values[layer][member, :, at] = both[:, shape.kv_heads :].swapaxes(0, 1)
        past = [len(path) * self.chunk for path in paths]
        for pack in self._packs(prompts, past):
            places = [(member, xp.put(rows)) for member, rows in zip(pack.members, pack.rows_of, strict=True)]

            def store(layer: int, k: Array, v: Array, places: Sequence[tuple[int, Array]] = places) -> None:
                for member, rows in places:
                    at = slice(past[member], past[member] + len(rows))
                    keys[layer][member, :, at] = k[rows].swapaxes(0, 1)
                    values[layer][member, :, at] = v[rows].swapaxes(0, 1)

            x = self._forward(pack, paths).run(store)
            for member, rows in places:
                last[member : member + 1] = x[rows[-1:]]
                if scored[member]:
                    before = [self._streams[name] for name in paths[member]]
                    logprobs[member] = self._score(xp.concatenate([*before, x[rows]]), prompts[member])
        return Prefilled(
            cache=PromptCache(keys=keys, values=values, lengths=lengths), last=last, logprobs=logprobs
        )

    def _path(self, prompt: IntArray, scored: bool) -> list[bytes]:
        """The prompt's whole chunks, each computed or taken."""
        path = digests(prompt, self.chunk)
        kept = None if self.name is None else [Key(self.name, self.threads, prefix) for prefix in path]
        for place, prefix in enumerate(path):
            if prefix in self._chunks and not (scored and prefix not in self._streams):
                continue
            if kept is None or scored:  # scores need more than keys and values
                self._chunks[prefix] = self._compute(prompt, path[: place + 1], scored=scored)
            else:
                compute = functools.partial(self._compute, prompt, path[: place + 1])
                self._chunks[prefix] = self.prefixes.get(kept[place], compute)
        if kept is not None:
            self.prefixes.touch(kept)
        return path

    def _compute(self, prompt: IntArray, path: Sequence[bytes], *, scored: bool = False) -> Array:
        """Keys and values ``[layers, chunk, 2 * kv_heads, head_dim]`` of the last chunk of ``path``."""
        shape, end = self.shape, len(path) * self.chunk
        size = (shape.layers, self.chunk, 2 * shape.kv_heads, shape.head_dim)
        made = self.ws.xp.empty(size, self.ws.dtype)

        def store(layer: int, k: Array, v: Array) -> None:
            made[layer, :, : shape.kv_heads] = k
            made[layer, :, shape.kv_heads :] = v

        [pack] = self._packs([prompt[:end]], [end - self.chunk])
        forward = self._forward(pack, [path[:-1]])
        if scored:
            self._streams[path[-1]] = self.ws.xp.copy(forward.run(store))
        else:
            forward.keys(store)
        return made

    def _packs(self, sequences: Sequence[IntArray], past: Sequence[int]) -> list[Pack]:
        return pack_sequences(
            sequences,
            max_rows=self.max_rows,
            streams=1,
            block_rows=self.block_rows,
            dtype=self.ws.dtype,
            window=self.shape.window,
            past=past,
        )

    def _forward(self, pack: Pack, paths: Sequence[Sequence[bytes]]) -> Forward:
        self.abort.check()

        def past(layer: int, block: Block) -> list[Array]:
            return [self._chunks[name][layer] for name in paths[block.member]]

        return Forward(
            self.model.weights,
            self.model.lora,
            pack,
            self.rope,
            self.ws,
            keep=False,
            panels=self.panels,
            past=past,
        )

    def _score(self, x: Array, prompt: IntArray) -> NDArray[np.float32]:
        """Logprob of each token from the residual stream ``[tokens, dim]``."""
        scores = np.full(len(prompt), np.nan, np.float32)
        if len(prompt) > 1:
            rows = np.arange(len(prompt) - 1)
            head = Head(self.model.weights, x, rows, place=rows, targets=prompt[1:, None], ws=self.ws)
            scores[1:] = head.logprobs()[:, 0]
        return scores
