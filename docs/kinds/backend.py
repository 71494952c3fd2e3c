"""A backend trains a model: it loads the model and returns a training client, whose methods submit work and return
awaitables.

One backend object lives for one run. It declares its features in `capabilities`, and the run options it follows in `honours`;
an experiment that needs others is refused before anything starts.
[`mock`](../backend-mock.md) is a small one to read.

## In an experiment file

```yaml
run:
  backend: {kind: bigrams}
```
"""

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evsys import register_backend
from evsys.protocols import Renderer, SamplingClient, Tokenizer, TrainingClient
from evsys.types import (
    AdamParams,
    Checkpoint,
    Datum,
    FinishReason,
    ForwardResult,
    LossFn,
    ModelSpec,
    OptimResult,
    SampledSequence,
    SampleResult,
    SamplingParams,
)
from evsys_runtime import load_renderer, load_tokenizer

type Table = NDArray[np.float64]


def done[T](value: T) -> Awaitable[T]:
    """What was asked for is there already: the methods of a training client submit at once and return an awaitable."""
    future: Future[T] = get_running_loop().create_future()
    future.set_result(value)
    return future


def log_softmax(scores: Table) -> Table:
    """Logprobs of scores, over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Snapshot:
    """A copy of the table: what is trained later doesn't change it."""

    def __init__(self, table: Table, version: int) -> None:
        self.logprobs, self.version = log_softmax(table), version

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        return SampleResult(sequences=[self.one(prompt[-1], params, index) for index in range(n)])

    def one(self, last: int, params: SamplingParams, index: int) -> SampledSequence:
        random = np.random.default_rng(None if params.seed is None else (params.seed, index))
        tokens: list[int] = []
        reason: FinishReason = "length"
        while len(tokens) < params.max_tokens and reason == "length":
            scores = self.logprobs[tokens[-1] if tokens else last]
            if params.temperature > 0:  # the Gumbel trick: the highest noisy score is a draw
                scores = scores / params.temperature + random.gumbel(size=len(scores))
            tokens.append(int(scores.argmax()))
            reason = "stop" if tokens[-1] in params.stop_token_ids else "length"
        seen = self.logprobs[[last, *tokens[:-1]], tokens]
        return SampledSequence(tokens=tokens, logprobs=[float(value) for value in seen], finish_reason=reason)

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        seen = self.logprobs[list(tokens[:-1]), list(tokens[1:])]
        return np.array([np.nan, *seen], dtype=np.float32)

    async def close(self) -> None: ...


class Client:
    """A score for each pair of tokens, trained with Adam."""

    def __init__(self, renderer: Renderer, tokenizer: Tokenizer) -> None:
        self.renderer, self.tokenizer = renderer, tokenizer
        size = tokenizer.vocab_size
        self.steps, self.table, self.gradient = 0, np.zeros((size, size)), np.zeros((size, size))
        self.moments = np.zeros((2, size, size))

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        return done(ForwardResult(logprobs=self.of_targets(data), tokens=sum(len(d.tokens) for d in data)))

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        if loss_fn != "cross_entropy":
            raise ValueError(f"bigrams computes cross_entropy only, not {loss_fn!r}")
        logprobs, loss = self.of_targets(data), 0.0
        for datum, values in zip(data, logprobs, strict=True):
            targets, weights = datum.loss_inputs["target_tokens"], datum.loss_inputs["weights"]
            loss -= float(np.sum(weights * values))
            slope = np.exp(log_softmax(self.table[datum.tokens])) * weights[:, None]
            slope[np.arange(len(targets)), targets] -= weights
            np.add.at(self.gradient, datum.tokens, slope)
        return done(ForwardResult(logprobs=logprobs, loss=loss, tokens=sum(len(d.tokens) for d in data)))

    def of_targets(self, data: Sequence[Datum]) -> list[Table]:
        return [
            log_softmax(self.table[datum.tokens])[
                np.arange(len(datum.tokens)), datum.loss_inputs["target_tokens"]
            ]
            for datum in data
        ]

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        self.steps += 1
        norm = float(np.linalg.norm(self.gradient))
        if 0 < params.grad_clip < norm:
            self.gradient *= params.grad_clip / norm
        for moment, beta, power in zip(self.moments, (params.beta1, params.beta2), (1, 2), strict=True):
            moment += (1 - beta) * (self.gradient**power - moment)
        first = self.moments[0] / (1 - params.beta1**self.steps)
        second = self.moments[1] / (1 - params.beta2**self.steps)
        self.table *= 1 - params.learning_rate * params.weight_decay
        self.table -= params.learning_rate * first / (np.sqrt(second) + params.eps)
        self.gradient[:] = 0
        return done(OptimResult(grad_norm=norm))

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        np.savez(directory / "bigrams.npz", table=self.table, moments=self.moments)
        return {"file": "bigrams.npz", "steps": self.steps}

    def restore(self, checkpoint: Checkpoint) -> None:
        with np.load(checkpoint.directory / checkpoint.state["file"]) as saved:
            self.table = saved["table"]
            if checkpoint.with_optimizer:
                self.moments, self.steps = saved["moments"], checkpoint.state["steps"]

    async def sampling_client(self) -> SamplingClient:
        return Snapshot(self.table, self.steps)


@register_backend("bigrams")
class Bigrams:
    """Learns which token follows which, and nothing else."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"loss_fns:cross_entropy", "resume", "deterministic"})
    conformance: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.5}

    async def prepare(
        self, model: ModelSpec, run_dir: Path, seed: int, restore: Checkpoint | None = None
    ) -> TrainingClient:
        client = Client(load_renderer(model.name), load_tokenizer(model.name))
        if restore is not None:
            client.restore(restore)
        return client

    async def teardown(self, client: TrainingClient | None) -> None: ...
