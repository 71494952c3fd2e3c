"""Sampling from a frozen snapshot on the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.errors import BackendError, EvsysError
from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_backend_tinker import convert
from evsys_backend_tinker.pauses import forward_messages
from evsys_backend_tinker.sdk import GoneError, as_cause, as_future, error_line, is_lost, sampler_id, tinker
from evsys_backend_tinker.together import Asked, NamedBatch, key_of
from evsys_backend_tinker.waiting import ignore_failure
from evsys_runtime.cancelling import own_task_cancelled
from evsys_runtime.gathering import Gathering, call_when_cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from numpy.typing import NDArray

    from evsys.protocols import Log, Tokenizer
    from evsys_backend_tinker.meter import Meter
    from evsys_backend_tinker.waiting import Waiting
    from evsys_runtime.accounting.limiter import Limiter

__all__ = ["Snapshot", "TinkerSampler"]


@attrs.define(kw_only=True, eq=False)
class Snapshot:
    """The client's sampling client, replaced if the server lost it.

    `renew` brings it back after a loss; `generation` says how often that was done. `lost` returns once the client
    of a generation has been replaced; `is_past` is true as soon as the replacement begins.
    """

    inner: Any
    generation: int
    renew: Callable[[int, Exception], Awaitable[None]]
    lost: Callable[[int], Coroutine[Any, Any, None]]
    is_past: Callable[[int], bool]
    closed: bool = False


class TinkerSampler:
    """A `SamplingClient` on the server.

    Args:
        snapshot: the client's sampling client.
        tokenizer: of the model.
        version: optimiser steps behind the weights.
        waiting: waits for outcomes.
        limiter: bounds the calls of all runs of this process that use the server.
        meter: counts tokens.
        one_seed: the server derives the seed of each sample of a call itself.
        together: announce to the server which calls were made together, so that it computes them as a run in
            process does.
        log: gets the client's messages.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        tokenizer: Tokenizer,
        version: int,
        waiting: Waiting,
        limiter: Limiter,
        meter: Meter,
        one_seed: bool,
        together: bool,
        log: Log | None,
    ) -> None:
        self.version = version
        self._snapshot = snapshot
        self._tokenizer = tokenizer
        self._waiting = waiting
        self._limiter = limiter
        self._meter = meter
        self._one_seed = one_seed
        self._gathering = Gathering(self._answer_together) if together else None
        self._answering: set[asyncio.Task[None]] = set()
        self._log = log

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations.

        Raises:
            BackendError: the client is closed, a parameter isn't usable, or the server failed.
        """
        tokens = self._check_prompt(prompt)
        if n < 1 or params.max_tokens < 1:
            raise BackendError(f"n and max_tokens must be at least 1, got {n} and {params.max_tokens}")
        if params.seed is None or n == 1 or self._one_seed:
            responses = [await self._draw(tokens, params, n, params.seed)]
        else:
            seeds = [convert.derived_seed(params.seed, index) for index in range(n)]
            async with asyncio.TaskGroup() as group:
                drawing = [group.create_task(self._draw(tokens, params, 1, seed)) for seed in seeds]
            responses = [task.result() for task in drawing]
        first = responses[0]
        sequences = self._sequences(responses, params, n)
        self._meter.sampled(prompt=len(tokens), completion=sum(len(one.tokens) for one in sequences))
        return SampleResult(
            sequences=sequences,
            prompt_logprobs=convert.prompt_logprobs(first.prompt_logprobs, len(tokens))
            if params.prompt_logprobs
            else None,
            top_prompt_logprobs=convert.top_prompt_logprobs(first.topk_prompt_logprobs, len(tokens))
            if params.top_prompt_logprobs
            else None,
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it, [N]; entry 0 is NaN."""
        ids = self._check_prompt(tokens)
        values = await self._call(
            lambda inner: inner.compute_logprobs(tinker().ModelInput.from_ints(ids)), len(ids)
        )
        found = convert.prompt_logprobs(values, len(ids))
        self._meter.sampled(prompt=len(ids), completion=0)
        return np.array([math.nan if value is None else value for value in found], np.float32)

    async def close(self) -> None:
        """Refuse further calls. The server frees the snapshot with the session."""
        self._snapshot.closed = True

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars of a sample; None where no price is known."""
        return self._meter.sampling_cost(prompt_tokens, completion_tokens)

    async def _draw(self, tokens: list[int], params: SamplingParams, n: int, seed: int | None) -> Any:
        stops = list(dict.fromkeys((*params.stop_token_ids, *self._tokenizer.eos_token_ids)))
        texts = [self._tokenizer.decode([token]) for token in stops] if params.stop else []
        more: dict[str, Any] = {}
        if params.prompt_logprobs or params.top_prompt_logprobs:
            more["include_prompt_logprobs"] = True
        if params.top_prompt_logprobs:
            more["topk_prompt_logprobs"] = params.top_prompt_logprobs
        if params.top_logprobs:
            more["topk_sample_logprobs"] = params.top_logprobs
        package = tinker()
        wanted = convert.sampling_params(params, stops, texts, seed)
        key = None if seed is None else key_of(tokens, attrs.evolve(params, seed=seed), n)
        return await self._call(
            lambda inner: inner.sample(package.ModelInput.from_ints(tokens), n, wanted, **more),
            len(tokens) + n * params.max_tokens,
            key,
        )

    async def _call(self, make: Callable[[Any], Any], tokens: int, key: str | None = None) -> Any:
        """The result of a call. One with a key waits for those made together with it."""
        outcome = asyncio.get_running_loop().create_future()
        asked = Asked(make=make, tokens=tokens, key=key or "", outcome=outcome)
        if self._gathering is None or key is None:
            await self._answer([asked])
        else:
            self._gathering.add(asked)
            self._gathering.watch()
        return await outcome

    def _answer_together(self, batch: list[Asked]) -> None:
        wanted = [asked for asked in batch if not asked.outcome.done()]
        if not wanted:
            return
        task = asyncio.get_running_loop().create_task(self._answer(wanted))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        call_when_cancelled([asked.outcome for asked in wanted], task.cancel)

    async def _answer(self, batch: Sequence[Asked]) -> None:
        """End all calls of a batch, in one turn of the event loop."""
        try:
            async with self._limiter.slot(sum(asked.tokens for asked in batch)):
                found = await self._outcomes(batch)
        except Exception as error:
            found = [error] * len(batch)
        for asked, outcome in zip(batch, found, strict=True):
            if asked.outcome.done():
                continue
            if isinstance(outcome, Exception):
                asked.outcome.set_exception(outcome)
            else:
                asked.outcome.set_result(outcome)

    async def _outcomes(self, batch: Sequence[Asked]) -> list[Any]:
        """The result or the exception of each call."""
        while True:
            generation = self._snapshot.generation
            try:
                return await self._unless_lost(self._draw_again(batch, generation), generation)
            except EvsysError:
                raise
            except Exception as error:
                if not self._is_lost(error, generation):
                    raise _call_error(error) from as_cause(error)
                await self._snapshot.renew(generation, error)

    async def _unless_lost(self, drawn: Coroutine[Any, Any, list[Any]], generation: int) -> list[Any]:
        """The samples. If another call finds that all is lost, this one's session is closed, and it may never hear
        of it.
        """
        drawing = asyncio.ensure_future(drawn)
        lost = asyncio.ensure_future(self._snapshot.lost(generation))
        try:
            await asyncio.wait({drawing, lost}, return_when=asyncio.FIRST_COMPLETED)
            if drawing.done():
                return drawing.result()
            raise GoneError("the model was made again while this was sampled")
        finally:
            drawing.cancel()
            lost.cancel()

    def _is_lost(self, error: Exception, generation: int) -> bool:
        """Also true if another call found it: the session has ended, so this call's own end means nothing."""
        return is_lost(error) or self._snapshot.is_past(generation)

    async def _draw_again(self, batch: Sequence[Asked], generation: int) -> list[Any]:
        """The same, unless the server has lost the snapshot."""
        inner = self._snapshot.inner
        named = None
        if len(batch) > 1:
            named = NamedBatch(
                waiting=self._waiting, sampler_id=sampler_id(inner), keys=[asked.key for asked in batch]
            )
            await named.name()
        with forward_messages(self._log):
            futures = [_start_call(asked, inner) for asked in batch]
        drawing = [asyncio.ensure_future(self._outcome(future, generation)) for future in futures]
        for task in drawing:
            task.add_done_callback(ignore_failure)
        try:
            await self._all_over(drawing, named)
            return [task.exception() or task.result() for task in drawing]
        finally:
            for task, future in zip(drawing, futures, strict=True):
                task.cancel()
                future.cancel()

    async def _all_over(self, drawing: Sequence[asyncio.Task[Any]], named: NamedBatch | None) -> None:
        """Wait until all calls are over. If others of a batch are still awaited, failures are reported to the
        server as they happen.
        """
        pending: set[asyncio.Task[Any]] = set(drawing)
        known = 0
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            failed = [place for place, task in enumerate(drawing) if task.done() and task.exception()]
            for place in failed:
                error = drawing[place].exception()
                if error is not None and not isinstance(error, EvsysError):
                    raise error
            if named is not None and pending and len(failed) > known:
                known = len(failed)
                await named.leave_out([named.keys[place] for place in failed])

    async def _outcome(self, future: asyncio.Future[Any], generation: int) -> Any:
        """The result of a call; it fails with an error of ours, unless all is lost."""
        try:
            return await self._waiting.for_call(future, "sample")
        except EvsysError:
            raise
        except asyncio.CancelledError:  # the client cancels its calls where it closes a session that is lost
            if own_task_cancelled() or not future.cancelled():
                raise
            raise GoneError("the call was let go") from None
        except Exception as error:
            if self._is_lost(error, generation):
                raise
            raise _call_error(error) from as_cause(error)

    def _sequences(self, responses: Sequence[Any], params: SamplingParams, n: int) -> list[SampledSequence]:
        found = [
            convert.to_sequence(sequence, bool(params.top_logprobs))
            for response in responses
            for sequence in response.sequences
        ]
        if len(found) != n:
            raise BackendError(f"the server gave {len(found)} samples of {n}")
        return found

    def _check_prompt(self, prompt: Sequence[int]) -> list[int]:
        if self._snapshot.closed:
            raise BackendError("the sampling client is closed")
        tokens = [int(token) for token in prompt]
        if not tokens:
            raise BackendError("the prompt has no tokens")
        outside = [token for token in tokens if not 0 <= token < self._tokenizer.vocab_size]
        if outside:
            size = self._tokenizer.vocab_size
            raise BackendError(f"the prompt has a token outside the vocabulary of {size}: {outside[0]}")
        return tokens


def _start_call(asked: Asked, inner: Any) -> asyncio.Future[Any]:
    """A call under way, or failed already: the client checks some of what is in it by itself."""
    try:
        return as_future(asked.make(inner))
    except Exception as error:
        refused = asyncio.get_running_loop().create_future()
        refused.set_exception(error)
        return refused


def _call_error(error: Exception) -> BackendError:
    return BackendError(f"sampling failed on the server: {error_line(error)}")
