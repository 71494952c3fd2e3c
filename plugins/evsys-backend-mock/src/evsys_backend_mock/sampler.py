"""Sampling from a frozen snapshot. Calls that wait at the same time are drawn together; no bit depends on that."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_backend_mock.drawing import Drawing
from evsys_backend_mock.features import Context, FeatureMap, last_features, refuse_beyond_context

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Tokenizer
    from evsys.types import FinishReason
    from evsys_backend_mock.model import LowRankModel

__all__ = ["MockSampler"]

_TOGETHER = 128  # sequences drawn in one go
_SLICE = 2048  # tokens drawn before others have the event loop


@attrs.define(kw_only=True, eq=False)
class _Sequence:
    """One continuation while it grows."""

    context: Context
    params: SamplingParams
    rng: np.random.Generator
    tokens: list[int] = attrs.field(factory=list)
    logprobs: list[float] = attrs.field(factory=list)
    top: list[dict[int, float]] = attrs.field(factory=list)
    finish: FinishReason | None = None


@attrs.frozen(kw_only=True, eq=False)
class _Request:
    """One call of `sample`: its sequences and who waits for them."""

    sequences: list[_Sequence]
    waiting: asyncio.Future[None]


def _rounded_logprob(logprob: float) -> float:
    """A logprob as every backend returns it, in float32, so that it is the same behind a server."""
    return float(np.float32(logprob))


class MockSampler:
    """A `SamplingClient` over a snapshot of the model.

    Sample i of a call draws from a stream of its own, keyed by (seed, i). A call without a seed takes one from the
    run's seed, the version and the number of such calls before it.
    """

    free: ClassVar[bool] = True

    def __init__(
        self, model: LowRankModel, features: FeatureMap, *, tokenizer: Tokenizer, seed: int, version: int
    ) -> None:
        self.version = version
        self._model = model
        self._drawing = Drawing(model.vocabulary)
        self._features = features
        self._tokenizer = tokenizer
        self._seed = seed
        self._unseeded = 0
        self._waiting: list[_Request] = []
        self._serving: asyncio.Task[None] | None = None
        self._closed = False

    @cached_property
    def digest(self) -> str:
        """Hash of the weights: equal ones say the same."""
        model = self._model
        content = hashlib.sha256(repr((model.scale, model.A.shape, model.B.shape)).encode())
        for array in (model.vocabulary.base, model.vocabulary.own, model.A, model.B):
            content.update(np.ascontiguousarray(array))
        return f"sha256:{content.hexdigest()}"

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations.

        Raises:
            BackendError: the client is closed, or the prompt or a parameter isn't usable.
        """
        tokens = self._check_tokens(prompt)
        if n < 1 or params.max_tokens < 1:
            raise BackendError(f"n and max_tokens must be at least 1, got {n} and {params.max_tokens}")
        streams = self._streams(params.seed, n)
        sequences = [
            _Sequence(context=Context(prompt, self._features.byte_level), params=params, rng=rng)
            for rng in streams
        ]
        request = _Request(sequences=sequences, waiting=asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._draw_waiting())
        await request.waiting
        prompt_logprobs = None
        if params.prompt_logprobs:
            prompt_logprobs = [None, *(float(x) for x in self._teacher_forced(tokens))]
        return SampleResult(
            sequences=[
                SampledSequence(
                    tokens=sequence.tokens,
                    logprobs=sequence.logprobs,
                    finish_reason=sequence.finish or "length",
                    top_logprobs=sequence.top if params.top_logprobs else None,
                )
                for sequence in sequences
            ],
            prompt_logprobs=prompt_logprobs,
            top_prompt_logprobs=[None, *self._likeliest(tokens, params.top_prompt_logprobs)]
            if params.top_prompt_logprobs
            else None,
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it, [N]; entry 0 is NaN."""
        array = self._check_tokens(tokens)
        return np.concatenate([np.full(1, np.nan, np.float32), self._teacher_forced(array)])

    async def close(self) -> None:
        """Refuse further calls. Safe to call twice."""
        self._closed = True

    def _check_tokens(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        if self._closed:
            raise BackendError("the sampling client is closed")
        refuse_beyond_context("the prompt", len(tokens))
        array = np.asarray(tokens, dtype=np.int64)
        if len(array) == 0:
            raise BackendError("the prompt has no tokens")
        if array.min() < 0 or array.max() >= self._model.vocab_size:
            raise BackendError(
                f"the prompt has a token outside the vocabulary of {self._model.vocab_size}: {array.max()}"
            )
        return array

    def _streams(self, seed: int | None, n: int) -> list[np.random.Generator]:
        key = [seed] if seed is not None else [self._seed, self.version, self._unseeded]
        if seed is None:
            self._unseeded += 1
        return [np.random.default_rng([*key, i]) for i in range(n)]

    def _teacher_forced(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(tokens) == 1:
            return np.zeros(0, np.float32)
        return self._model.logprobs(self._features.of(tokens[:-1]), tokens[1:]).astype(np.float32)

    def _likeliest(self, tokens: NDArray[np.int64], k: int) -> list[dict[int, float]]:
        """The k likeliest tokens at each position but the first."""
        if len(tokens) == 1:
            return []
        rows = self._model.column_logprobs(self._model.hidden(self._features.of(tokens[:-1])))
        found = (self._drawing.likeliest(row, k) for row in rows)
        return [{token: _rounded_logprob(logprob) for token, logprob in one.items()} for one in found]

    async def _draw_waiting(self) -> None:
        """Serve the requests that wait, as many at a time as fit, until none is left."""
        try:
            while self._waiting:
                taken = [self._waiting.pop(0)]
                while (
                    self._waiting and sum(len(r.sequences) for r in (*taken, self._waiting[0])) <= _TOGETHER
                ):
                    taken.append(self._waiting.pop(0))
                await self._serve([one for one in taken if not one.waiting.done()])  # others stopped waiting
        finally:
            self._serving = None

    async def _serve(self, taken: Sequence[_Request]) -> None:
        try:
            await self._draw([sequence for request in taken for sequence in request.sequences])
        except Exception as error:
            for request in taken:
                if not request.waiting.done():
                    request.waiting.set_exception(error)
            return
        for request in taken:
            if not request.waiting.done():
                request.waiting.set_result(None)

    async def _draw(self, growing: list[_Sequence]) -> None:
        drawn = 0
        while growing:
            features = last_features([sequence.context for sequence in growing])
            table = self._model.column_logprobs(self._model.hidden(features))
            for sequence, columns in zip(growing, table, strict=True):
                self._extend(sequence, columns)
            drawn += len(growing)
            growing = [sequence for sequence in growing if sequence.finish is None]
            if drawn >= _SLICE and growing:
                drawn = 0
                await asyncio.sleep(0)

    def _extend(self, sequence: _Sequence, columns: NDArray[np.float64]) -> None:
        params = sequence.params
        token, logprob = self._drawing.draw(columns, params, sequence.rng)
        sequence.tokens.append(token)
        sequence.logprobs.append(_rounded_logprob(logprob))
        if params.top_logprobs:
            top = self._drawing.likeliest(columns, params.top_logprobs)
            sequence.top.append({token: _rounded_logprob(logprob) for token, logprob in top.items()})
        sequence.context.push(token)
        if self._stops(token, sequence):
            sequence.finish = "stop"
        elif len(sequence.tokens) >= params.max_tokens:
            sequence.finish = "length"

    def _stops(self, token: int, sequence: _Sequence) -> bool:
        params = sequence.params
        if token in self._tokenizer.eos_token_ids or token in params.stop_token_ids:
            return True
        return bool(params.stop) and any(
            stop in self._tokenizer.decode(sequence.tokens) for stop in params.stop
        )
