"""The engine: base weights loaded once, several trained models over them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from evsys.errors import BackendError
from evsys_backend_local.engine import ops, panels, sampler
from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.arrays import NUMPY, Array, Arrays
from evsys_backend_local.engine.attention import BLOCK_ROWS
from evsys_backend_local.engine.batch import Batch, BatchResult, Example, Loss
from evsys_backend_local.engine.estimate import trained_bytes
from evsys_backend_local.engine.lora import LoraParams
from evsys_backend_local.engine.memory import require_memory
from evsys_backend_local.engine.prefix_cache import PrefixCache
from evsys_backend_local.engine.sampler import SampleOutput, SampleRequest
from evsys_backend_local.engine.shape import LINEARS, ModelShape
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.engine.workers import WorkerPool, cpu_count, hold_lock


class Engine:
    """Trains and samples models that share base weights.

    Calls may come from any thread; matrix work of the whole process is done one call at a time, since the number of
    BLAS threads belongs to the process. Same calls, same worker count and same BLAS give the same bits.

    A call with ``abort`` raises ``AbortedError`` soon after that flag is set: between decoding steps and between packs.

    Args:
        weights: the base model.
        workers: worker threads, by default one a CPU (one in all where ``xp`` shares operations among threads itself). Results depend on it in the last bits.
        max_rows: rows (tokens after sharing) that one worker computes at a time; bounds memory.
        block_rows: query rows of an attention block.
        prefixes: what is kept of prompts from one call of ``sample`` to the next.
        xp: what computes; weights are copied there if they lie elsewhere.
    """

    def __init__(
        self,
        weights: BaseWeights,
        *,
        workers: int | None = None,
        max_rows: int = 256,
        block_rows: int = BLOCK_ROWS,
        prefixes: PrefixCache | None = None,
        xp: Arrays = NUMPY,
    ) -> None:
        self.xp = xp
        weights = weights.on(xp)
        self.weights = weights
        self.shape: ModelShape = weights.shape
        self.max_rows = max_rows
        self.block_rows = block_rows
        dtype = weights.params.dtype
        self.pool = WorkerPool(workers or xp.workers or cpu_count(), dtype, xp)
        shape = self.shape
        cos, sin = ops.rope_table(
            shape.max_context, shape.head_dim, shape.rope_theta, dtype, shape.rope_factors
        )
        self.rope = (xp.put(cos), xp.put(sin))
        self._base = Snapshot(weights=weights, lora=None, version=0)
        self.prefixes = prefixes or PrefixCache()
        self._panels: panels.ModelPanels | None = None
        self._panels_lock = threading.Lock()
        self._lock = threading.RLock()

    @property
    def base(self) -> Snapshot:
        """The untrained model, to sample from or to score with."""
        return self._base

    @property
    def workers(self) -> int:
        """Worker threads."""
        return self.pool.count

    def create_adapter(
        self, *, rank: int = 32, alpha: float = 32.0, targets: Sequence[str] = LINEARS, seed: int = 0
    ) -> Trainable:
        """New LoRA adapter: A random by ``seed``, B zero, scale ``alpha / rank``.

        Raises:
            ValueError: unknown or no target module, or a rank below 1.
            NotEnoughMemoryError: an adapter of this rank can't be trained here.
        """
        dtype = self.weights.params.dtype
        known = [name for name in LINEARS if name in targets]
        self._require_room(
            rank,
            known,
            f"the matrices of an adapter of rank {rank}, their gradients and moments",
            hint="choose a lower lora_rank",
        )
        lora = LoraParams(self.shape, rank=rank, alpha=alpha, targets=targets, dtype=dtype, xp=self.xp)
        lora.initialise(seed)
        return Trainable(self.weights, lora)

    def create_full(self) -> Trainable:
        """A copy of the base weights, all of them trained. Takes five times their memory, and again a worker.

        Raises:
            NotEnoughMemoryError: that isn't free.
        """
        self._require_room(
            None, LINEARS, "all weights, their gradients and moments", hint="train an adapter (lora_rank)"
        )
        return Trainable(self.weights.copy(), None)

    def _require_room(self, rank: int | None, targets: Sequence[str], what: str, *, hint: str) -> None:
        itemsize = self.weights.params.dtype.itemsize
        needed = trained_bytes(
            self.shape, workers=self.workers, rank=rank, targets=targets, snapshots=0, itemsize=itemsize
        )
        require_memory(needed, what, hint=hint, free=self.xp.free_bytes)

    def batch(
        self, data: Sequence[Example], *, share: bool = True, model: Trainable | Snapshot | None = None
    ) -> Batch:
        """Check and pack examples; ``model`` is what will compute them, if any will."""
        return Batch(
            self.shape,
            data,
            self.pool,
            max_rows=self.max_rows,
            block_rows=self.block_rows,
            share=share,
            panels=None if model is None else self._panels_of(model),
        )

    def forward(
        self, model: Trainable | Snapshot, data: Sequence[Example], *, abort: Abort | None = None
    ) -> list[Array]:
        """Logprobs of the targets, one array an example in the shape of its targets; 0 where the mask is False."""
        batch = self.batch(data, model=model)
        with self._turn(abort):
            batch.forward(model, self.rope, abort)
        return batch.logprobs

    def forward_backward(
        self,
        model: Trainable,
        data: Sequence[Example],
        loss: Loss,
        *,
        separable: bool = False,
        abort: Abort | None = None,
    ) -> BatchResult:
        """Logprobs, the loss on them, and its gradient added to ``model.grad``.

        Args:
            model: what is trained.
            data: examples.
            loss: ``(indices, logprobs) -> (value, d(value)/d(logprobs), metrics)``, see :data:`Loss`.
            separable: ``loss`` is a sum over examples and may be called on parts of the batch, which saves memory.
            abort: ends the call early; ``model.grad`` is then unchanged.

        Raises:
            ValueError: no example has a trained position, or shapes or ids are wrong.
            FloatingPointError: the loss or its gradient is not finite; ``model.grad`` is unchanged.
        """
        batch = self.batch(data, model=model)
        if not batch.parts:
            raise ValueError(
                f"none of the {len(data)} examples has a position with a loss; check the mask or weights, and "
                "whether truncation cut the answers off"
            )
        with self._turn(abort):
            value, metrics = batch.forward_backward(model, self.rope, loss, separable=separable, abort=abort)
        return BatchResult(
            value=value, logprobs=batch.logprobs, metrics=metrics, rows=batch.rows, tokens=batch.tokens
        )

    def optim_step(self, model: Trainable, params: AdamParams) -> float:
        """Apply and clear the summed gradient; returns its global L2 norm before clipping."""
        return model.step(params)

    def sample(
        self, model: Trainable | Snapshot, requests: Sequence[SampleRequest], *, abort: Abort | None = None
    ) -> list[SampleOutput]:
        """Answer requests in one batch; see :class:`SampleRequest`. A snapshot stays fixed while training continues.

        A prompt that begins as an earlier one of the same snapshot did isn't computed again from its start.
        """
        if not requests:
            return []
        with self._turn(abort):
            return sampler.sample(
                model,
                requests,
                self.pool,
                self.rope,
                max_rows=self.max_rows,
                block_rows=self.block_rows,
                abort=abort or Abort(),
                prefixes=self.prefixes,
                panels=self._panels_of(model),
            )

    @contextmanager
    def _turn(self, abort: Abort | None) -> Iterator[None]:
        """Alone in the workers' memory: a batch whose loss needs all logprobs keeps its activations there while the loss is called."""
        with hold_lock(self._lock, abort), self._within_memory():
            yield

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except self.xp.out_of_memory as exc:
            raise BackendError(
                f"no memory is left on {self.xp.device}: {exc}",
                hint="lower micro_batch_rows, prefix_cache_mb or max_length in backend.params, or sample fewer at a time",
            ) from exc

    def _panels_of(self, model: Trainable | Snapshot) -> panels.ModelPanels | None:
        """The base weights in panels, made on first use; None for a model that has weights of its own."""
        if model.weights is not self.weights or not panels.pay(self.weights):
            return None
        with self._panels_lock, self._within_memory():
            if self._panels is None:
                self._panels = panels.ModelPanels(self.weights)
            return self._panels

    def compute_logprobs(
        self, model: Trainable | Snapshot, sequences: Sequence[Sequence[int]], *, abort: Abort | None = None
    ) -> list[NDArray[np.float32]]:
        """Logprob of each token given those before it, ``[N]`` a sequence; entry 0 is NaN."""
        arrays = [np.asarray(tokens, np.int64) for tokens in sequences]
        longer = [index for index, tokens in enumerate(arrays) if len(tokens) > 1]
        data = [Example(tokens=arrays[index][:-1], targets=arrays[index][1:]) for index in longer]
        results = [np.full(len(tokens), np.nan, np.float32) for tokens in arrays]
        scored = self.forward(model, data, abort=abort) if data else []
        for index, logprobs in zip(longer, scored, strict=True):
            results[index][1:] = logprobs
        return results

    def likeliest(
        self, model: Trainable | Snapshot, tokens: Sequence[int], k: int, *, abort: Abort | None = None
    ) -> list[dict[int, float]]:
        """The ``k`` likeliest tokens at each position but the first, given those before it, with their logprobs."""
        ids = np.asarray(tokens, np.int64)
        if len(ids) < 2:
            return []
        batch = self.batch([Example(tokens=ids[:-1], targets=ids[1:])], model=model)
        with self._turn(abort):
            batch.forward(model, self.rope, abort, likeliest=k)
        found, logprobs = batch.likeliest[0]
        return [
            dict(zip(own, values, strict=True))
            for own, values in zip(found.tolist(), logprobs.tolist(), strict=True)
        ]

    def forget(self, snapshot: Snapshot) -> None:
        """Let go of what is kept for a snapshot that won't be sampled any more."""
        self.prefixes.forget(snapshot)

    def close(self) -> None:
        """End the worker threads."""
        self.pool.close()
        self.prefixes.clear()
