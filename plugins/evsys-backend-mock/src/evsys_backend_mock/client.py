"""The mock's training client: every call is done when it returns, in call order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys.types import AdamParams, Datum, ForwardResult, LossFn, OptimResult
from evsys_backend_mock.adam import AdamState, adam_step
from evsys_backend_mock.features import FeatureMap, Features, refuse_beyond_context
from evsys_backend_mock.model import Gradient, widened
from evsys_backend_mock.sampler import MockSampler
from evsys_backend_mock.state import Saved, write_state
from evsys_runtime import BUILTIN_LOSSES, compute_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Renderer, Tokenizer
    from evsys_backend_mock.model import LowRankModel

__all__ = ["MockTrainingClient"]


class _Done[T](Awaitable[T]):
    """The outcome of a finished call; a failure is raised where it is awaited."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._error: Exception | None = None
        try:
            self._value: T = call()
        except Exception as error:
            self._error = error

    def __await__(self) -> Generator[Any, None, T]:
        return self._outcome().__await__()

    async def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value


class MockTrainingClient:
    """A `TrainingClient` over `LowRankModel`.

    Args:
        start: weights and optimiser to start from.
        tokenizer: of the model.
        renderer: of the model.
        seed: of sampling where a call brings none.
        capabilities: what the backend can do.
        version: optimiser steps of this run behind it.
    """

    free: ClassVar[bool] = True

    def __init__(
        self,
        start: Saved,
        *,
        tokenizer: Tokenizer,
        renderer: Renderer,
        seed: int,
        capabilities: frozenset[str],
        version: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.renderer = renderer
        self.capabilities = capabilities
        self._model = start.model
        self._optimizer = start.optimizer
        self._average = start.average
        self._features = FeatureMap(start.model.vocab_size)
        self._gradient: Gradient | None = None
        self._seed = seed
        self._version = version
        self._closed = False

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of the targets, in the targets' shapes."""
        return _Done(lambda: _rounded_result(self._forward(data)[2]))

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """Compute a built-in or any other loss and add its gradient."""
        return _Done(lambda: self._forward_backward(data, loss_fn, loss_params))

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        """One step of Adam on the gradient added up since the last one."""
        return _Done(lambda: self._optim_step(params))

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        """Write weights and optimiser to one file in `directory`."""
        self._check_open()
        saved = Saved(model=self._model, optimizer=self._optimizer, average=self._average)
        return write_state(directory, saved)

    async def sampling_client(self) -> MockSampler:
        """A snapshot of the weights as they are now."""
        self._check_open()
        return self._sampler(self._model)

    async def averaged_sampling_client(self, rate: float) -> MockSampler:
        """A snapshot of the running mean of the weights, moved by `rate` of the way to what they are now."""
        self._check_open()
        model = self._model
        # With a running mean there, its tokens have the columns that the model's have: `_give_columns` sees to it.
        mean = model if self._average is None else self._average
        self._average = attrs.evolve(
            model, A=mean.A + rate * (model.A - mean.A), B=mean.B + rate * (model.B - mean.B)
        )
        return self._sampler(self._average)

    def close(self) -> None:
        """Refuse further calls. Safe to call twice."""
        self._closed = True

    def _sampler(self, model: LowRankModel) -> MockSampler:
        return MockSampler(
            model, self._features, tokenizer=self.tokenizer, seed=self._seed, version=self._version
        )

    def _forward(self, data: Sequence[Datum]) -> tuple[Features, NDArray[np.int64], ForwardResult]:
        self._check_open()
        if not data:
            raise BackendError("the batch has no data")
        targets = [self._target_matrix(datum, i) for i, datum in enumerate(data)]
        features = Features.joined([self._features.of(np.asarray(d.tokens, dtype=np.int64)) for d in data])
        padded = _stacked(targets)
        # Told in float32 as by every backend, so that they are the same behind a server; losses continue in float64.
        found = self._model.logprobs(features, padded).astype(np.float32).astype(np.float64)
        edges = np.cumsum([len(array) for array in targets])[:-1]
        logprobs = [
            rows[:, : array.shape[1]].reshape(np.shape(datum.loss_inputs["target_tokens"]))
            for rows, array, datum in zip(np.split(found, edges), targets, data, strict=True)
        ]
        return features, padded, ForwardResult(logprobs=logprobs, tokens=len(padded))

    def _forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None
    ) -> ForwardResult:
        features, targets, forward = self._forward(data)
        if isinstance(
            loss_fn, str
        ):  # a name means the backend's own loss, whatever a project calls by that name
            loss_fn = BUILTIN_LOSSES.get(loss_fn, loss_fn)
        result = compute_loss(loss_fn, data, forward.logprobs, loss_params)
        slopes = _stacked([np.reshape(grad, (len(grad), -1)) for grad in result.grads])
        self._give_columns(targets[slopes != 0])
        gradient = self._model.gradient(features, targets, slopes)
        self._gradient = gradient if self._gradient is None else self._gradient + gradient
        return attrs.evolve(_rounded_result(forward), loss=result.loss, metrics=result.metrics)

    def _give_columns(self, trained: NDArray[np.int64]) -> None:
        """Tokens trained for the first time get columns of their own; their moments start at zero."""
        new = self._model.vocabulary.missing(trained)
        if len(new) == 0:
            return
        self._model = self._model.grown(new)
        self._average = self._average and self._average.grown(new)
        columns = self._model.B.shape[1]
        state = self._optimizer
        self._optimizer = AdamState(
            step=state.step,
            first={**state.first, "B": widened(state.first["B"], columns)},
            second={**state.second, "B": widened(state.second["B"], columns)},
        )

    def _optim_step(self, params: AdamParams) -> OptimResult:
        self._check_open()
        gradient, self._gradient = self._gradient, None
        if gradient is None:
            raise BackendError("optim_step without a gradient", hint="call forward_backward before it")
        norm = gradient.norm
        weights, self._optimizer = adam_step(
            {"A": self._model.A, "B": self._model.B},
            {"A": gradient.A, "B": gradient.B},
            self._optimizer,
            params,
            norm,
        )
        self._model = attrs.evolve(self._model, A=weights["A"], B=weights["B"])
        self._version += 1
        return OptimResult(grad_norm=norm)

    def _target_matrix(self, datum: Datum, i: int) -> NDArray[np.int64]:
        """The targets as [N, K], all ids inside the vocabulary."""
        targets = datum.loss_inputs.get("target_tokens")
        if targets is None:
            raise BackendError(f"datum {i} has no target_tokens")
        refuse_beyond_context(f"datum {i}", len(datum.tokens))
        array = np.asarray(targets)
        for what, ids in (("token", np.asarray(datum.tokens)), ("target token", array)):
            if not np.issubdtype(ids.dtype, np.integer):
                raise BackendError(f"datum {i}: {what}s must be integers, got {ids.dtype}")
            if ids.size and (ids.min() < 0 or ids.max() >= self._model.vocab_size):
                bad = ids.min() if ids.min() < 0 else ids.max()
                raise BackendError(
                    f"datum {i}: {what} {bad} is outside the vocabulary of {self._model.vocab_size}",
                    hint="were the tokens made with another model's tokenizer?",
                )
        if len(array) == 0:
            raise BackendError(f"datum {i} has no tokens")
        return array.astype(np.int64).reshape(len(array), -1)

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("the training client is closed")


def _rounded_result(result: ForwardResult) -> ForwardResult:
    """A result as it is reported."""
    return attrs.evolve(result, logprobs=[array.astype(np.float32) for array in result.logprobs])


def _stacked[D: np.generic](arrays: Sequence[NDArray[D]]) -> NDArray[D]:
    """Arrays [N, K] on top of each other, narrower ones filled up with zeros."""
    widths = [array.shape[1] for array in arrays]
    if len(set(widths)) == 1:
        return np.concatenate(arrays)
    edges = np.cumsum([0, *map(len, arrays)])
    found = np.zeros((edges[-1], max(widths)), arrays[0].dtype)
    for array, start in zip(arrays, edges[:-1], strict=True):
        found[start : start + len(array), : array.shape[1]] = array
    return found
