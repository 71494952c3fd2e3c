"""The training client: evsys's calls as calls of the official client, submitted at once and in order."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError
from evsys.types import AdamParams, Datum, ForwardResult, LossFn, OptimResult
from evsys_backend_tinker import convert
from evsys_backend_tinker.sampler import Snapshot, TinkerSampler
from evsys_backend_tinker.sdk import resolve
from evsys_backend_tinker.selftest import Fingerprint
from evsys_backend_tinker.stream import Call

if TYPE_CHECKING:
    from evsys.protocols import Log, Renderer, Tokenizer
    from evsys_backend_tinker.meter import Meter
    from evsys_backend_tinker.states import States
    from evsys_backend_tinker.stream import Stream
    from evsys_runtime.accounting.limiter import Limiter

__all__ = ["TinkerTrainingClient"]


@attrs.define(kw_only=True, eq=False)
class TinkerTrainingClient:
    """A model on a server; see `evsys.protocols.TrainingClient`.

    Args:
        stream: the calls on the model.
        states: saves them on the server.
        renderer: of the model.
        tokenizer: of the model.
        limiter: bounds sampling calls.
        meter: counts tokens.
        capabilities: what this server can do.
        facts: for the record.
        max_length: longest sequence, if the server reports it.
        one_seed: the server derives the seed of each sample of a call itself.
        together: sampling calls made together are computed together.
        first: optimiser steps behind the weights that it started from.
        log: of the run.
        submits_ahead: calls are submitted in order, so that a step may be submitted while the one before it is
            running.
    """

    stream: Stream
    states: States
    renderer: Renderer
    tokenizer: Tokenizer
    limiter: Limiter
    meter: Meter
    capabilities: frozenset[str]
    facts: Mapping[str, Any]
    max_length: int | None
    one_seed: bool
    together: bool = False
    first: int = 0
    log: Log | None = None
    submits_ahead: bool = True
    _last: Fingerprint | None = None

    @property
    def version(self) -> int:
        """Optimiser steps behind the weights, with those submitted."""
        return self.first + self.stream.steps

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of all targets, float32."""
        sent = convert.data_for(_unweighted(data), "cross_entropy")
        self.meter.forwarded(_tokens(data))
        call = Call(
            kind="train",
            make=lambda model: model.forward(sent, "cross_entropy"),
            convert=lambda output: convert.forward_result(output, data, None),
            what="forward",
        )
        return self.stream.submit(call)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """Add the gradient of one of the server's losses. Callables are for the runtime, which takes two passes.

        Raises:
            BackendError: the loss is a callable or one that servers don't compute, or a datum lacks what it reads.
        """
        if not isinstance(loss_fn, str) or f"loss_fns:{loss_fn}" not in self.capabilities:
            name = loss_fn if isinstance(loss_fn, str) else getattr(loss_fn, "__name__", "a callable")
            raise BackendError(
                f"the server doesn't compute the loss {name}",
                hint="evsys_runtime.training.two_pass.forward_backward trains on it in two passes",
            )
        sent, config = convert.data_for(data, loss_fn), convert.loss_config(loss_fn, loss_params)
        self.meter.trained(_tokens(data))
        self._last = Fingerprint.of_batch(data) or self._last
        call = Call(
            kind="train",
            make=lambda model: model.forward_backward(sent, loss_fn, config),
            convert=lambda output: convert.forward_result(output, data, loss_fn, loss_params),
            changes=True,
            what="forward_backward",
        )
        return self.stream.submit(call)

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        """One step of AdamW on the gradient added up since the last one."""
        sent = convert.adam_params(params)
        call = Call(
            kind="train",
            make=lambda model: model.optim_step(sent),
            convert=convert.optim_result,
            changes=True,
            steps=1,
            what="optim_step",
        )
        return self.stream.submit(call)

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        """Save weights and optimiser on the server; the checkpoint keeps the address, and values to verify it."""
        check = None if self._last is None else await self._fingerprint(self._last)
        return await self.states.save(self.stream, version=self.version, check=check)

    async def keep_state(self, state: Mapping[str, Any]) -> None:
        """Keep the state of a checkpoint that is the run's best by now, given the value of its `save_state`."""
        await self.states.keep_best(str(state["path"]))

    async def sampling_client(self) -> TinkerSampler:
        """A snapshot after every `optim_step` submitted before this call."""
        version = self.version

        async def renew(generation: int, error: Exception) -> None:
            await self.stream.renewed(generation, error)
            if snapshot.generation == generation:
                await self.stream.made_again(call)

        def fill(inner: Any) -> None:
            snapshot.inner, snapshot.generation = inner, self.stream.generation

        snapshot = Snapshot(
            inner=None,
            generation=self.stream.generation,
            renew=renew,
            lost=self.stream.until_past,
            is_past=self.stream.is_past,
        )
        call = Call(
            kind="save",
            make=lambda model: resolve(model.save_weights_and_get_sampling_client()),
            convert=fill,
            renew=fill,
            again=lambda: not snapshot.closed,
            blocking=True,
            what="a snapshot to sample from",
        )
        await self.stream.submit(call)
        return TinkerSampler(
            snapshot,
            tokenizer=self.tokenizer,
            version=version,
            waiting=self.stream.waiting,
            limiter=self.limiter,
            meter=self.meter,
            one_seed=self.one_seed,
            together=self.together,
            log=self.log,
        )

    def training_cost(self, trained_tokens: int) -> float | None:
        """US dollars of training on so many tokens; None where no price is known."""
        return self.meter.training_cost(trained_tokens)

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars of a forward pass, which is priced as reading a prompt; None where no price is known."""
        return self.meter.sampling_cost(prompt_tokens, completion_tokens)

    async def differs_from(self, check: Mapping[str, Any]) -> float | None:
        """How far the model's logprobs are from those noted when its state was saved; None where nothing was noted."""
        noted = Fingerprint.read(check)
        if noted is None:
            return None
        return noted.distance(await self._fingerprint(noted))

    async def _fingerprint(self, of: Fingerprint) -> Mapping[str, Any]:
        result = await self.forward([of.datum()])
        return of.noted(result.logprobs[0])


def _unweighted(data: Sequence[Datum]) -> list[Datum]:
    """A bare forward gives all logprobs, so nothing may be weighted away."""
    return [
        attrs.evolve(
            datum, loss_inputs={name: value for name, value in datum.loss_inputs.items() if name != "weights"}
        )
        for datum in data
    ]


def _tokens(data: Sequence[Datum]) -> int:
    return sum(len(datum.tokens) for datum in data)
