"""Training and sampling clients of the contract over the engine.

All engine work of a run goes through one thread in the order of submission, so a step is pipelined: the loop submits
forward/backward and the optimiser together and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from evsys.errors import BackendError
from evsys.protocols import Renderer, Tokenizer
from evsys.types import AdamParams, Checkpoint, Datum, ForwardResult, LossFn, ModelSpec, OptimResult
from evsys_backend_local.backend import LocalBackend, LocalConfig
from evsys_backend_local.engine import adam
from evsys_backend_local.engine.batch import Example, Loss
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.estimate import estimate
from evsys_backend_local.engine.shape import LINEARS
from evsys_backend_local.engine.state import load_state, save_state
from evsys_backend_local.engine.trainable import Trainable
from evsys_backend_local.models.resolve import load_base
from evsys_backend_local.sampling import LocalSamplingClient, SampleQueue
from evsys_runtime.losses import compute_loss
from evsys_runtime.rendering.resolve import load_renderer

__all__ = ["LocalTrainingClient"]

SEPARABLE = frozenset({"cross_entropy", "importance_sampling", "ppo", "cispo", "dro"})
"""Built-in losses are sums over sequences, so a batch may be computed in parts, which bounds memory."""


def _example(datum: Datum, *, everywhere: bool) -> Example:
    """Positions without weight need no logits, unless a loss of the user's may look at them."""
    weights = datum.loss_inputs.get("weights", datum.loss_inputs.get("advantages"))
    mask = None
    if weights is not None and not everywhere:
        used = np.asarray(weights) != 0
        mask = used.any(axis=1) if used.ndim == 2 else used
    return Example(tokens=datum.tokens, targets=datum.loss_inputs["target_tokens"], mask=mask)


class LocalTrainingClient:
    """A model being trained on this machine; see `evsys.protocols.TrainingClient`."""

    def __init__(
        self,
        engine: Engine,
        trainable: Trainable,
        renderer: Renderer,
        executor: ThreadPoolExecutor,
        *,
        max_length: int | None = None,
    ) -> None:
        self._engine = engine
        self._max_length: int = min(max_length or engine.shape.max_context, engine.shape.max_context)
        self._model = trainable
        self._renderer = renderer
        self._executor = executor
        self._queue = SampleQueue(engine, executor)

    @classmethod
    def load(
        cls,
        config: LocalConfig,
        model: ModelSpec,
        seed: int,
        restore: Checkpoint | None,
        executor: ThreadPoolExecutor,
    ) -> LocalTrainingClient:
        """Load base weights and make, or restore, what is trained. Blocking."""
        engine = Engine(load_base(model.name), workers=config.workers, max_rows=config.micro_batch_rows)
        lora = model.lora
        if lora.rank is None:
            trainable = engine.create_full()
        else:
            targets = LINEARS if "all-linear" in lora.targets else lora.targets
            trainable = engine.create_adapter(rank=lora.rank, alpha=lora.alpha, targets=targets, seed=seed)
        if restore is not None:
            load_state(trainable, restore.directory, with_optimizer=restore.with_optimizer)
        renderer = load_renderer(model.name, renderer=model.renderer)
        return cls(engine, trainable, renderer, executor, max_length=config.max_length)

    @property
    def tokenizer(self) -> Tokenizer:
        """The base model's tokenizer."""
        tokenizer: Tokenizer = self._renderer.tokenizer  # type: ignore[attr-defined]  # every renderer of ours has it
        return tokenizer

    @property
    def renderer(self) -> Renderer:
        """The base model's chat template."""
        return self._renderer

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of the backend."""
        return LocalBackend.capabilities

    @property
    def max_length(self) -> int:
        """Longest sequence that can be trained, in tokens."""
        return self._max_length

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the numbers depend on in their last bits, for the record: workers and BLAS."""
        from evsys_backend_local.engine.workers import blas_info

        return {"workers": self._engine.workers, **blas_info()}

    def estimate(self, data: Sequence[Datum], steps: int) -> Mapping[str, float]:
        """Expected `seconds` and `peak_bytes` of `steps` steps on batches like this one, within a factor of about two.

        Takes about 0.1 s: it measures how fast this machine multiplies matrices now.
        """
        rows = self._engine.batch([_example(datum, everywhere=False) for datum in data]).rows
        expected = estimate(
            self._engine.shape,
            rows=rows,
            steps=steps,
            workers=self._engine.workers,
            max_rows=self._engine.max_rows,
            full=self._model.lora is None,
        )
        return {"seconds": expected.seconds, "peak_bytes": float(expected.peak_bytes)}

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of all targets."""

        def compute() -> ForwardResult:
            logprobs = self._engine.forward(self._model, [_example(datum, everywhere=True) for datum in data])
            return ForwardResult(logprobs=logprobs, tokens=sum(len(datum.tokens) for datum in data))

        return self._submit(compute)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """One pass: forward, the loss, backward. Callables get all logprobs of the batch at once."""
        separable = isinstance(loss_fn, str) and loss_fn in SEPARABLE

        def loss(
            indices: Sequence[int], logprobs: list[Any]
        ) -> tuple[float, Sequence[Any], Mapping[str, float]]:
            result = compute_loss(loss_fn, [data[i] for i in indices], logprobs, loss_params)
            return result.loss, result.grads, result.metrics

        return self._submit(lambda: self._step(data, loss, separable=separable))

    def _step(self, data: Sequence[Datum], loss: Loss, *, separable: bool) -> ForwardResult:
        examples = [_example(datum, everywhere=not separable) for datum in data]
        result = self._engine.forward_backward(self._model, examples, loss, separable=separable)
        return ForwardResult(
            logprobs=result.logprobs,
            loss=result.value,
            metrics=result.metrics,
            tokens=sum(len(d.tokens) for d in data),
        )

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        """AdamW on what is trained."""
        settings = adam.AdamParams(
            learning_rate=params.learning_rate,
            beta1=params.beta1,
            beta2=params.beta2,
            eps=params.eps,
            weight_decay=params.weight_decay,
            grad_clip=params.grad_clip,
        )
        return self._submit(lambda: OptimResult(grad_norm=self._engine.optim_step(self._model, settings)))

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        """Write the trained weights and the optimiser into `directory`."""
        return await self._submit(lambda: save_state(self._model, directory))

    async def sampling_client(self) -> LocalSamplingClient:
        """A frozen copy of the trained weights; the base is shared."""
        snapshot = await self._submit(self._model.snapshot)
        return LocalSamplingClient(snapshot, self._queue, self._renderer)

    def close(self) -> None:
        """End the engine's threads. Blocking; called in the engine's own thread, after all that was submitted."""
        self._engine.close()

    def _submit[T](self, work: Callable[[], T]) -> asyncio.Future[T]:
        def attributed() -> T:
            try:
                return work()
            except FloatingPointError as exc:
                raise BackendError(
                    str(exc), hint="lower the learning rate, or look at the data of this step"
                ) from exc

        return asyncio.wrap_future(self._executor.submit(attributed))
