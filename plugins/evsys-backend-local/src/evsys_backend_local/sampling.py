"""Sampling: concurrent calls become one batch of the engine.

A batch is what `evsys_runtime.gathering` takes together. With `coalesce`, calls that arrive while a batch is computed wait for its
end and are then taken together too: fewer and larger batches, of a composition that depends on time.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys.errors import BackendError
from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_backend_local.engine.abort import Abort, AbortedError
from evsys_backend_local.engine.sampler import SampleOutput, SampleRequest
from evsys_backend_local.engine.trainable import Snapshot
from evsys_runtime.gathering import Gathering, call_when_cancelled

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys_backend_local.engine.engine import Engine

__all__ = ["LocalSamplingClient", "SampleQueue", "torn_down"]


@attrs.frozen(kw_only=True, eq=False)
class _Waiting:
    request: SampleRequest
    future: asyncio.Future[SampleOutput]


@attrs.define(kw_only=True, eq=False)
class _Calls:
    """Calls for one snapshot: those that wait to be a batch, and how many of its batches are being computed."""

    snapshot: Snapshot
    gathering: Gathering[_Waiting]
    computing: int = 0


def torn_down() -> BackendError:
    """The error of calls made, or still waiting, after teardown."""
    return BackendError("this backend was torn down; its clients can't be used any more")


class SampleQueue:
    """Gathers concurrent requests for a snapshot and answers them in one engine call.

    Each snapshot's are gathered by themselves, so that a scoring has the same batches regardless of concurrent
    samples. A call that is not awaited any more is ended, so that it doesn't hold up what comes after it.

    Args:
        engine: answers.
        executor: where the engine computes.
        abort: set by teardown; ends all.
        coalesce: take calls together that arrive while a batch is computed.
    """

    def __init__(self, engine: Engine, executor: Executor, abort: Abort, *, coalesce: bool = False) -> None:
        self.engine = engine
        self.executor = executor
        self.abort = abort
        self.coalesce = coalesce
        self._calls: dict[Snapshot, _Calls] = {}

    async def ask(self, snapshot: Snapshot, request: SampleRequest) -> SampleOutput:
        """Wait for the answer to one request."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request=request, future=loop.create_future())
        calls = self._calls.get(snapshot)
        if calls is None:
            calls = self._calls[snapshot] = _Calls(
                snapshot=snapshot, gathering=Gathering(lambda batch: self._take(snapshot, batch))
            )
        calls.gathering.add(waiting)
        self._gather(calls)
        return await waiting.future

    def _gather(self, calls: _Calls) -> None:
        """Watch calls come in, unless what is computed is waited for."""
        if not (self.coalesce and calls.computing):
            calls.gathering.watch()

    def _take(self, snapshot: Snapshot, batch: Sequence[_Waiting]) -> None:
        calls = self._calls[snapshot]
        wanted = [waiting for waiting in batch if not waiting.future.done()]
        if wanted:
            self._start(calls, wanted)
        self._forget(calls)

    def _forget(self, calls: _Calls) -> None:
        """Hold no snapshot that no one asks any more."""
        if not (calls.gathering.waiting or calls.computing):
            self._calls.pop(calls.snapshot, None)

    def _start(self, calls: _Calls, batch: Sequence[_Waiting]) -> None:
        requests = [waiting.request for waiting in batch]
        abort = Abort(self.abort)
        try:
            job = self.run(
                asyncio.get_running_loop(),
                functools.partial(self.engine.sample, calls.snapshot, requests, abort=abort),
            )
        except BackendError as error:
            _fail(batch, error)
            return
        calls.computing += 1
        job.add_done_callback(lambda done: self._deliver(batch, done))
        job.add_done_callback(lambda _: self._go_on(calls))
        call_when_cancelled([waiting.future for waiting in batch], abort.set)

    def _go_on(self, calls: _Calls) -> None:
        """After a batch: gather what waited for its end, with those whom its answers let continue."""
        calls.computing -= 1
        if calls.gathering.waiting:
            self._gather(calls)
        self._forget(calls)

    def run[T](self, loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do `work` in the engine's thread.

        Raises:
            BackendError: the backend was torn down.
        """
        try:
            return loop.run_in_executor(self.executor, contextvars.copy_context().run, work)
        except RuntimeError as error:  # the executor takes nothing any more
            raise torn_down() from error

    @staticmethod
    def _deliver(batch: Sequence[_Waiting], done: asyncio.Future[list[SampleOutput]]) -> None:
        if done.cancelled():
            for waiting in batch:
                waiting.future.cancel()
            return
        error = done.exception()
        if error is not None:
            _fail(batch, _caller_error(error))
            return
        for waiting, output in zip(batch, done.result(), strict=True):
            if not waiting.future.done():
                waiting.future.set_result(output)


def _caller_error(error: BaseException) -> BaseException:
    """An engine's exception as the error for the caller."""
    if isinstance(error, AbortedError):
        return torn_down()
    if isinstance(error, FloatingPointError):
        hint = "lower the learning rate, or go back to an earlier checkpoint"
        return BackendError(str(error), hint=hint, not_finite="logits")
    return error


def _fail(batch: Sequence[_Waiting], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)


class LocalSamplingClient:
    """A frozen snapshot; see `evsys.protocols.SamplingClient`.

    A call without a seed takes one from the run's seed, the version and the number of such calls before it.
    """

    free: ClassVar[bool] = True

    def __init__(self, snapshot: Snapshot, queue: SampleQueue, renderer: Renderer, *, seed: int) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._queue = queue
        self._renderer = renderer
        self._seed = seed
        self._unseeded = 0
        self.version = snapshot.version

    @property
    def digest(self) -> str:
        """Hash of all weights, those of the base included: equal ones say the same.

        Raises:
            BackendError: the snapshot was closed.
        """
        snapshot = self._open()
        base = self._queue.engine.base
        return snapshot.digest if snapshot.lora is None else f"{base.digest} {snapshot.digest}"

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations.

        Raises:
            BackendError: the prompt holds what is not a token of the model, it and `max_tokens` exceed the model's context, the
                weights diverged, the snapshot was closed, or the backend torn down.
        """
        snapshot = self._open()
        request = SampleRequest(
            prompt=prompt,
            n=n,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_k=params.top_k or 0,
            top_p=params.top_p,
            stop_tokens=frozenset(params.stop_token_ids),
            should_stop=self._stop_on(params.stop),
            seed=self._next_seed() if params.seed is None else params.seed,
            prompt_logprobs=params.prompt_logprobs,
            top_logprobs=params.top_logprobs,
        )
        request.check(snapshot.weights.shape)
        output = await self._queue.ask(snapshot, request)
        logprobs = output.prompt_logprobs
        likeliest = await self._likeliest(prompt, params.top_prompt_logprobs)
        return SampleResult(
            sequences=[
                SampledSequence(
                    tokens=sample.tokens,
                    logprobs=sample.logprobs,
                    finish_reason=sample.finish_reason,
                    top_logprobs=sample.top_logprobs,
                )
                for sample in output.samples
            ],
            prompt_logprobs=None if logprobs is None else [None, *(float(value) for value in logprobs[1:])],
            top_prompt_logprobs=likeliest,
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it; entry 0 is NaN.

        Raises:
            BackendError: the snapshot was closed, or the backend torn down.
        """
        engine, snapshot = self._queue.engine, self._open()
        return (await self._compute(functools.partial(engine.compute_logprobs, snapshot, [tokens])))[0]

    async def _likeliest(self, prompt: Sequence[int], k: int) -> list[dict[int, float] | None] | None:
        """The `k` likeliest tokens at each of a prompt's positions; None where none are wanted."""
        if not k:
            return None
        engine, snapshot = self._queue.engine, self._open()
        return [None, *await self._compute(functools.partial(engine.likeliest, snapshot, prompt, k))]

    async def _compute[T](self, work: Callable[..., T]) -> T:
        """The engine's result of `work`, which is aborted once nothing waits for it."""
        queue = self._queue
        abort = Abort(queue.abort)
        job = queue.run(asyncio.get_running_loop(), functools.partial(work, abort=abort))
        try:
            return await job
        except asyncio.CancelledError:
            abort.set()
            raise
        except AbortedError:
            raise torn_down() from None

    async def close(self) -> None:
        """Let go of the copy of the weights, and of what is kept of its prompts."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._queue.engine.forget(snapshot)

    def _open(self) -> Snapshot:
        if self._snapshot is None:
            raise BackendError("this snapshot was closed; take a new one from the training client")
        if self._queue.abort.is_set():
            raise torn_down()
        return self._snapshot

    def _next_seed(self) -> int:
        key = [self._seed, self.version, self._unseeded]
        self._unseeded += 1
        return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])

    def _stop_on(self, stops: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
        if not stops:
            return None
        tokenizer = self._renderer.tokenizer  # type: ignore[attr-defined]  # every renderer of ours has it
        return lambda tokens: any(stop in tokenizer.decode(tokens) for stop in stops)
