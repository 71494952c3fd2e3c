"""Sampling: concurrent calls become one batch of the engine.

Calls that arrive while the event loop works through what is ready are taken together. So a wave of rollouts that is
started together is one batch, and its composition depends on the program alone, never on time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys.errors import BackendError
from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_backend_local.engine.sampler import SampleOutput, SampleRequest
from evsys_backend_local.engine.trainable import Snapshot

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys_backend_local.engine.engine import Engine

__all__ = ["LocalSamplingClient", "SampleQueue"]

IDLE_TURNS = 3
"""Turns of the event loop without a new call after which a batch is complete: a task that was just started makes its call
within that many."""


@attrs.frozen(kw_only=True, eq=False)
class _Waiting:
    snapshot: Snapshot
    request: SampleRequest
    future: asyncio.Future[SampleOutput]


class SampleQueue:
    """Gathers concurrent requests and answers them in one engine call per snapshot."""

    def __init__(self, engine: Engine, executor: ThreadPoolExecutor) -> None:
        self.engine = engine
        self.executor = executor
        self._waiting: list[_Waiting] = []
        self._seen = 0
        self._idle = 0

    async def ask(self, snapshot: Snapshot, request: SampleRequest) -> SampleOutput:
        """Wait for the answer to one request."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(snapshot=snapshot, request=request, future=loop.create_future())
        if not self._waiting:
            self._seen, self._idle = 0, 0
            loop.call_soon(self._look, loop)
        self._waiting.append(waiting)
        return await waiting.future

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._waiting) > self._seen:
            self._seen, self._idle = len(self._waiting), 0
        else:
            self._idle += 1
        if self._idle < IDLE_TURNS:
            loop.call_soon(self._look, loop)
            return
        batch, self._waiting = self._waiting, []
        for snapshot in dict.fromkeys(waiting.snapshot for waiting in batch):
            self._start([waiting for waiting in batch if waiting.snapshot is snapshot], loop)

    def _start(self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
        requests = [waiting.request for waiting in batch]
        try:
            job = loop.run_in_executor(self.executor, self.engine.sample, batch[0].snapshot, requests)
        except RuntimeError as exc:  # the executor has been shut down by teardown
            error = BackendError("this backend was torn down; its samplers can't be used any more")
            error.__cause__ = exc
            _fail(batch, error)
            return
        job.add_done_callback(lambda done: self._deliver(batch, done))

    @staticmethod
    def _deliver(batch: Sequence[_Waiting], done: asyncio.Future[list[SampleOutput]]) -> None:
        if done.cancelled():
            for waiting in batch:
                waiting.future.cancel()
            return
        error = done.exception()
        if error is not None:
            _fail(batch, error)
            return
        for waiting, output in zip(batch, done.result(), strict=True):
            if not waiting.future.done():
                waiting.future.set_result(output)


def _fail(batch: Sequence[_Waiting], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)


class LocalSamplingClient:
    """A frozen snapshot; see `evsys.protocols.SamplingClient`."""

    def __init__(self, snapshot: Snapshot, queue: SampleQueue, renderer: Renderer) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._queue = queue
        self._renderer = renderer
        self.version = snapshot.version
        self.digest = snapshot.digest

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations.

        Raises:
            BackendError: the prompt and `max_tokens` exceed the model's context, or the snapshot was closed.
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
            seed=params.seed if params.seed is not None else int(np.random.default_rng().integers(2**62)),
            prompt_logprobs=params.prompt_logprobs,
            top_logprobs=params.top_logprobs,
        )
        try:
            request.check(snapshot.weights.shape)
        except ValueError as exc:
            raise BackendError(str(exc)) from exc
        output = await self._queue.ask(snapshot, request)
        logprobs = output.prompt_logprobs
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
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it; entry 0 is NaN."""
        snapshot, loop = self._open(), asyncio.get_running_loop()
        results = await loop.run_in_executor(
            self._queue.executor, self._queue.engine.compute_logprobs, snapshot, [tokens]
        )
        return results[0]

    async def close(self) -> None:
        """Let the copy of the weights go."""
        self._snapshot = None

    def _open(self) -> Snapshot:
        if self._snapshot is None:
            raise BackendError("this snapshot was closed; take a new one from the training client")
        return self._snapshot

    def _stop_on(self, stops: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
        if not stops:
            return None
        tokenizer = self._renderer.tokenizer  # type: ignore[attr-defined]  # every renderer of ours has it
        return lambda tokens: any(stop in tokenizer.decode(tokens) for stop in stops)
