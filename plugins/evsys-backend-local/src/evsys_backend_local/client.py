"""Training and sampling clients of the contract over the engine.

All engine work of a run goes through one thread in the order of submission, so a step is pipelined: the loop submits
forward/backward and the optimiser together and continues.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evsys.errors import BackendError, ConfigError, Problem
from evsys.protocols import Renderer, Tokenizer
from evsys.types import AdamParams, Checkpoint, Datum, ForwardResult, LossFn, ModelSpec, OptimResult
from evsys_backend_local.config import CPU_ROWS, GPU_ROWS, LocalConfig, capabilities_of
from evsys_backend_local.engine import adam
from evsys_backend_local.engine.abort import Abort, AbortedError
from evsys_backend_local.engine.arrays import NUMPY
from evsys_backend_local.engine.batch import Example, Loss
from evsys_backend_local.engine.devices import select
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.estimate import Sampled, estimate
from evsys_backend_local.engine.prefix_cache import PrefixCache
from evsys_backend_local.engine.shape import LINEARS
from evsys_backend_local.engine.state import load_state, save_state
from evsys_backend_local.engine.trainable import Trainable
from evsys_backend_local.models.resolve import shared_base
from evsys_backend_local.sampling import LocalSamplingClient, SampleQueue, torn_down
from evsys_runtime import BUILTIN_LOSSES, compute_loss, load_renderer

__all__ = ["LocalTrainingClient"]

_POLICY = ("weights", "advantages")

SEPARABLE: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": ("weights",),
    "importance_sampling": _POLICY,
    "ppo": _POLICY,
    "cispo": _POLICY,
    "dro": ("weights",),  # its penalty acts where the advantage is 0 too
}
"""Built-in losses are sums over positions, so a batch may be computed in parts, which bounds memory. Each with the loss
inputs that it multiplies a position's term with: where one of them is 0 the position needs no logits."""


def _require_context(config: LocalConfig, context: int, name: str) -> None:
    if config.max_length is not None and config.max_length > context:
        message = f"{config.max_length} exceeds the context of {name}, {context} tokens"
        hint = f"leave it out, or choose at most {context}"
        raise ConfigError([Problem(path="$.backend.params.max_length", message=message, hint=hint)])


def _example(datum: Datum, factors: Sequence[str] = ()) -> Example:
    """A datum for the engine; without `factors` (a loss of the user's may look anywhere) all positions are computed."""
    mask: NDArray[np.bool_] | None = None
    for name in factors:
        if name in datum.loss_inputs:
            used = np.asarray(datum.loss_inputs[name]) != 0
            used = used.any(axis=1) if used.ndim == 2 else used
            mask = used if mask is None else mask & used
    return Example(tokens=datum.tokens, targets=datum.loss_inputs["target_tokens"], mask=mask)


def _sample_size(sampling: Mapping[str, int], rows: int) -> Sampled:
    return Sampled(
        prompt_tokens=sampling["prompt_tokens"],
        answers=sampling["answers"],
        answer_tokens=sampling["answer_tokens"],
        at_once=sampling["at_once"],
        read_rows=sampling["readings"] * rows,
    )


def _zeros(examples: Sequence[Example]) -> list[NDArray[Any]]:
    return [np.zeros(example.targets.shape, np.float32) for example in examples]


def _logprob_arrays(examples: Sequence[Example], logprobs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """NaN where nothing was computed: 0 would pass for a certain token."""
    found = []
    for example, own in zip(examples, logprobs, strict=True):
        told = own.copy()
        if example.mask is not None:
            told[~example.mask] = np.nan
        found.append(told)
    return found


class LocalTrainingClient:
    """A model being trained on this machine; see `evsys.protocols.TrainingClient`."""

    free: ClassVar[bool] = True

    def __init__(
        self,
        engine: Engine,
        trainable: Trainable,
        renderer: Renderer,
        executor: Executor,
        *,
        seed: int,
        max_length: int | None = None,
        coalesce: bool = False,
    ) -> None:
        self._engine = engine
        self._max_length: int = min(max_length or engine.shape.max_context, engine.shape.max_context)
        self._model = trainable
        self._renderer = renderer
        self._executor = executor
        self._seed = seed
        self._abort = Abort()
        self._queue = SampleQueue(engine, executor, self._abort, coalesce=coalesce)

    @classmethod
    def load(
        cls,
        config: LocalConfig,
        model: ModelSpec,
        seed: int,
        restore: Checkpoint | None,
        executor: Executor,
    ) -> LocalTrainingClient:
        """Load base weights and make, or restore, what is trained. Blocking."""
        xp = select(config.device)
        base = shared_base(model.name, xp)
        _require_context(config, base.shape.max_context, model.name)
        prefixes = PrefixCache(config.prefix_cache_mb << 20)
        rows = config.micro_batch_rows or (CPU_ROWS if xp is NUMPY else GPU_ROWS)
        engine = Engine(base, workers=config.workers, max_rows=rows, prefixes=prefixes, xp=xp)
        lora = model.lora
        if lora.rank is None:
            trainable = engine.create_full()
        else:
            targets = LINEARS if "all-linear" in lora.targets else lora.targets
            trainable = engine.create_adapter(rank=lora.rank, alpha=lora.alpha, targets=targets, seed=seed)
        if restore is not None:
            load_state(trainable, restore.directory, with_optimizer=restore.with_optimizer)
            trainable.version = restore.step
        renderer = load_renderer(model.name, renderer=model.renderer)
        return cls(
            engine,
            trainable,
            renderer,
            executor,
            seed=seed,
            max_length=config.max_length,
            coalesce=bool(config.coalesce),
        )

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
        """Those of the backend on this device."""
        return capabilities_of(on_gpu=self._engine.xp is not NUMPY)

    @property
    def max_length(self) -> int:
        """Longest sequence that can be trained, in tokens."""
        return self._max_length

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts that the last bits of the numbers depend on, for the record."""
        from evsys_backend_local.engine.workers import blas_info

        return {
            "workers": self._engine.workers,
            "micro_batch_rows": self._engine.max_rows,
            "coalesce": self._queue.coalesce,
            "device": self._engine.xp.device,
            **self._engine.xp.versions,
            "dtype": str(self._engine.weights.params.dtype),
            "parameters": self._engine.shape.parameters,
            "blas": blas_info(),
        }

    def estimate(
        self, data: Sequence[Datum], steps: int, sampling: Mapping[str, int] | None = None
    ) -> Mapping[str, float]:
        """Expected `seconds` and `peak_bytes` of `steps` steps on batches like this one.

        The time is right within a factor of about two, the memory, sampling included, within about 15 %. If a step
        samples, `sampling` says how much: `answers` of at most `answer_tokens`, `at_once` of them at a time, to
        prompts of `prompt_tokens` in all, and `readings` of the batch alongside training. Both are then upper
        bounds, and `sampled_tokens` of a step are added.

        Takes about 0.1 s: it measures how fast this machine multiplies matrices now.
        """
        rows = self._engine.batch([_example(datum, _POLICY) for datum in data]).rows
        expected = estimate(
            self._engine.shape,
            rows=rows,
            steps=steps,
            workers=self._engine.workers,
            max_rows=self._engine.max_rows,
            longest=max((len(datum.tokens) for datum in data), default=0),
            rank=None if self._model.lora is None else self._model.lora.rank,
            xp=self._engine.xp,
            sampled=None if sampling is None else _sample_size(sampling, rows),
        )
        told = {"seconds": expected.seconds, "peak_bytes": float(expected.peak_bytes)}
        if sampling is not None:
            told["sampled_tokens"] = float(sampling["answers"] * sampling["answer_tokens"])
        return told

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of all targets."""

        def compute() -> ForwardResult:
            logprobs = self._engine.forward(
                self._model, [_example(datum) for datum in data], abort=self._abort
            )
            return ForwardResult(logprobs=logprobs, tokens=sum(len(datum.tokens) for datum in data))

        return self._submit(compute)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """One pass: forward, the loss, backward. Callables get all logprobs of the batch at once.

        Logprobs in the result are NaN where a built-in loss has no term.
        """
        factors = SEPARABLE.get(loss_fn) if isinstance(loss_fn, str) else None
        if isinstance(
            loss_fn, str
        ):  # a name means the backend's own loss, whatever a project calls by that name
            loss_fn = BUILTIN_LOSSES.get(loss_fn, loss_fn)

        def loss(
            indices: Sequence[int], logprobs: list[Any]
        ) -> tuple[float, Sequence[Any], Mapping[str, float]]:
            result = compute_loss(loss_fn, [data[i] for i in indices], logprobs, loss_params)
            return result.loss, result.grads, result.metrics

        return self._submit(lambda: self._step(data, loss, factors))

    def _step(self, data: Sequence[Datum], loss: Loss, factors: tuple[str, ...] | None) -> ForwardResult:
        examples = [_example(datum, factors or ()) for datum in data]
        tokens = sum(len(datum.tokens) for datum in data)
        if factors is None:
            joint = self._engine.forward_backward(self._model, examples, loss, abort=self._abort)
            return ForwardResult(
                logprobs=joint.logprobs, loss=joint.value, metrics=joint.metrics, tokens=tokens
            )
        if all(example.mask is not None and not example.mask.any() for example in examples):
            value, logprobs = 0.0, _zeros(examples)  # a batch without signal has no gradient
        else:
            parts = self._engine.forward_backward(
                self._model, examples, loss, separable=True, abort=self._abort
            )
            value, logprobs = parts.value, parts.logprobs
        # Means and maxima of the parts don't add up: metrics are those of the loss on the whole batch.
        _, _, metrics = loss(range(len(data)), logprobs)
        return ForwardResult(
            logprobs=_logprob_arrays(examples, logprobs), loss=value, metrics=metrics, tokens=tokens
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
        return LocalSamplingClient(snapshot, self._queue, self._renderer, seed=self._seed)

    async def averaged_sampling_client(self, rate: float) -> LocalSamplingClient:
        """A frozen copy of the running mean of the trained weights, moved by `rate` of the way to what they are now."""
        snapshot = await self._submit(lambda: self._model.averaged(rate))
        return LocalSamplingClient(snapshot, self._queue, self._renderer, seed=self._seed)

    def abort(self) -> None:
        """End what still computes, within about a decoding step or a pack, and compute nothing more."""
        self._abort.set()

    def close(self) -> None:
        """End the engine's threads. Blocking; called in the engine's own thread, after all submitted work."""
        self._engine.close()

    def _submit[T](self, work: Callable[[], T]) -> asyncio.Future[T]:
        def attributed() -> T:
            try:
                self._abort.check()
                return work()
            except AbortedError:
                raise torn_down() from None
            except FloatingPointError as exc:
                raise BackendError(
                    str(exc),
                    hint="lower the learning rate, or look at the data of this step",
                    not_finite="training",
                ) from exc

        if self._abort.is_set():
            raise torn_down()
        future = asyncio.wrap_future(self._executor.submit(contextvars.copy_context().run, attributed))
        future.add_done_callback(self._settle)
        return future

    def _settle(self, future: asyncio.Future[Any]) -> None:
        """Calls ended by teardown are not a fault, so their exceptions are dropped."""
        if self._abort.is_set() and not future.cancelled():
            future.exception()
