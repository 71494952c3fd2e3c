"""Batched sampling: prompts first, then decoding with shared prompt caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.decode import KV_BYTES, Decoder, final_logits, split_by_memory
from evsys_backend_local.engine.draw import draw, log_normaliser, reshape_distribution, uniforms
from evsys_backend_local.engine.limits import ContextTooLongError, InvalidInputError
from evsys_backend_local.engine.packing import IntArray
from evsys_backend_local.engine.panels import ModelPanels
from evsys_backend_local.engine.prefill import Prefill
from evsys_backend_local.engine.prefix_cache import PrefixCache
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.engine.workers import WorkerPool, blas_threads
from evsys_backend_local.engine.workspace import Workspace

#: Without panels: from this many samples on, workers share the requests; below, BLAS threads share each matrix product. The
#: two draw level on a quiet machine of two cores; on a busy one BLAS threads wait for each other and take three to five times
#: as long. With panels no product is large enough for BLAS threads.
WORKERS_FROM_SAMPLES = 16

#: Models below this many parameters fit into the caches: each worker reads the weights for itself, and threads inside a
#: matrix product would spend their time waiting for each other.
SMALL_MODEL = 20_000_000


@attrs.frozen(kw_only=True, eq=False)
class SampleRequest:
    """``n`` continuations of one prompt.

    Attributes:
        prompt: token ids, at least one.
        n: samples.
        max_tokens: most new tokens; None fills the context.
        temperature: 0 is greedy.
        top_k: 0 keeps all tokens.
        top_p: 1 keeps all tokens.
        stop_tokens: ids that end a sample; the id itself is kept as its last token.
        should_stop: called with a sample's tokens after each one, for stop strings; True ends the sample.
        seed: with the sample's index it names the random stream.
        first_index: index of the first of the ``n`` samples.
        prompt_logprobs: also return the logprob of each prompt token.
        top_logprobs: also return that many likeliest tokens at each sampled position.
    """

    prompt: Sequence[int]
    n: int = 1
    max_tokens: int | None = 128
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_tokens: frozenset[int] = frozenset()
    should_stop: Callable[[Sequence[int]], bool] | None = None
    seed: int = 0
    first_index: int = 0
    prompt_logprobs: bool = False
    top_logprobs: int = 0

    def check(self, shape: ModelShape) -> int:
        """Raise :class:`InvalidInputError` that says what is wrong; returns the most tokens a sample may get."""
        prompt = np.asarray(self.prompt)
        if not len(prompt):
            raise InvalidInputError("the prompt is empty; sampling needs at least one token")
        if prompt.dtype.kind not in "iu":
            raise InvalidInputError(f"token ids must be integers, the prompt holds {prompt.dtype}")
        if prompt.min() < 0 or prompt.max() >= shape.vocab:
            raise InvalidInputError(
                f"the prompt holds ids outside 0..{shape.vocab - 1}; is the tokenizer the model's?"
            )
        if self.n < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise InvalidInputError(f"n ({self.n}) and max_tokens ({self.max_tokens}) must be at least 1")
        if not (self.temperature >= 0 and 0 < self.top_p <= 1 and self.top_k >= 0):
            raise InvalidInputError(
                f"sampling needs temperature >= 0, 0 < top_p <= 1, top_k >= 0; got {self.temperature}, "
                f"{self.top_p}, {self.top_k}"
            )
        if self.seed < 0:
            raise InvalidInputError(f"a seed must be at least 0, got {self.seed}")
        room = shape.max_context - len(prompt)
        wanted = room if self.max_tokens is None else self.max_tokens
        if room < 1 or wanted > room:
            raise ContextTooLongError(
                f"a prompt of {len(prompt)} tokens and {wanted} new ones exceed the model's context of "
                f"{shape.max_context}",
                hint="shorten the prompt or lower max_tokens",
                tokens=len(prompt) + wanted,
                limit=shape.max_context,
            )
        return wanted


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """One continuation. ``logprobs`` are the model's own at temperature 1, regardless of the sampling settings."""

    tokens: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    top_logprobs: list[dict[int, float]] | None = None


@attrs.frozen(kw_only=True, eq=False)
class SampleOutput:
    """Answer to one request; ``prompt_logprobs`` is ``[prompt]`` with NaN for the first token, which follows nothing."""

    samples: list[Sample]
    prompt_logprobs: NDArray[np.float32] | None = None


def sample(
    model: Trainable | Snapshot,
    requests: Sequence[SampleRequest],
    pool: WorkerPool,
    rope: tuple[Array, Array],
    *,
    max_rows: int,
    block_rows: int,
    abort: Abort,
    prefixes: PrefixCache,
    panels: ModelPanels | None = None,
) -> list[SampleOutput]:
    """Answer all requests, in order.

    ``panels`` are those of the model's base weights, ``prefixes`` what is kept of earlier prompts.
    """
    shape = model.weights.shape
    limits = [request.check(shape) for request in requests]
    itemsize = pool.workspaces[0].dtype.itemsize
    per_token = 2 * shape.layers * shape.kv_width * itemsize
    answers = [request.n * limit for request, limit in zip(requests, limits, strict=True)]
    waves = split_by_memory([len(request.prompt) for request in requests], answers, KV_BYTES // per_token)
    outputs: dict[int, SampleOutput] = {}

    def answer(indices: Sequence[int], ws: Workspace, threads: int = 1) -> None:
        prefill = Prefill(
            model,
            rope,
            ws,
            prefixes=prefixes,
            threads=threads,
            max_rows=max_rows,
            block_rows=block_rows,
            abort=abort,
            panels=panels,
        )
        wave = _Wave(prefill, [requests[i] for i in indices], [limits[i] for i in indices])
        outputs.update(zip(indices, wave.run(), strict=True))

    for wave in waves:
        total = sum(requests[index].n for index in wave)
        small = panels is not None or shape.parameters < SMALL_MODEL
        if pool.count > 1 and len(wave) > 1 and (small or total >= WORKERS_FROM_SAMPLES):
            hands = pool.deal([answers[index] for index in wave])
            tasks = [
                lambda ws, hand=[wave[place] for place in hand]: answer(hand, ws) for hand in hands if hand
            ]
            pool.run(tasks, abort)
        else:
            threads = 1 if small else pool.count
            with blas_threads(threads, abort):
                answer(wave, pool.workspaces[0], threads)
    return [outputs[index] for index in range(len(requests))]


class _Wave:
    """Requests decoded together."""

    def __init__(self, prefill: Prefill, requests: Sequence[SampleRequest], limits: Sequence[int]) -> None:
        self.prefill = prefill
        self.abort = prefill.abort
        self.panels = prefill.panels
        self.rope, self.ws, self.xp = prefill.rope, prefill.ws, prefill.ws.xp
        self.weights, self.lora = prefill.model.weights, prefill.model.lora
        self.requests = requests
        self.owner = np.repeat(np.arange(len(requests)), [request.n for request in requests])
        count = len(self.owner)
        self.limit = np.asarray(limits)[self.owner]
        first = np.concatenate([[0], np.cumsum([request.n for request in requests])])
        self.streams = [
            uniforms(
                requests[owner].seed, requests[owner].first_index + index - int(first[owner]), int(limit)
            )
            for index, (owner, limit) in enumerate(zip(self.owner.tolist(), self.limit, strict=True))
        ]
        self.temperature = np.asarray([request.temperature for request in requests], np.float64)[self.owner]
        self.top_k = np.asarray([request.top_k for request in requests], np.int64)[self.owner]
        self.top_p = np.asarray([request.top_p for request in requests], np.float64)[self.owner]
        self.plain = bool(((self.temperature == 1) & (self.top_k == 0) & (self.top_p == 1)).all())
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        self.logprobs: list[list[float]] = [[] for _ in range(count)]
        self.top: list[list[dict[int, float]]] = [[] for _ in range(count)]
        self.reasons: list[Literal["stop", "length"] | None] = [None] * count

    def run(self) -> list[SampleOutput]:
        """Prefill, decode, collect."""
        prompts = self.prefill.run(
            [np.asarray(request.prompt, np.int64) for request in self.requests],
            [request.prompt_logprobs for request in self.requests],
        )
        logits = final_logits(self.weights, prompts.last, self.ws, self.panels)[self.xp.put(self.owner)]
        everyone = np.arange(len(self.owner))
        chosen = self._choose(logits, everyone)
        alive = self._record(everyone, chosen)
        if len(alive):
            decoder = Decoder(
                self.weights,
                self.lora,
                prompts.cache,
                self.owner,
                capacity=int(self.limit.max()),
                rope=self.rope,
                ws=self.ws,
                panels=self.panels,
            )
            next_token = chosen
            while len(alive):
                self.abort.check()
                decoder.retire(alive)
                places = decoder.slots.samples.reshape(-1)
                logits = decoder.step(next_token[np.maximum(places, 0)])
                active = np.flatnonzero(np.isin(places, alive))
                if len(active) < len(places):
                    logits = logits[self.xp.put(active)]
                chosen = self._choose(logits, places[active])
                next_token[places[active]] = chosen
                alive = self._record(places[active], chosen)
        return self._collect(prompts.logprobs)

    def _choose(self, logits: Array, samples: IntArray) -> IntArray:
        """Draw one token for each of ``samples`` from ``logits`` ``[len(samples), vocab]`` and note its logprob."""
        xp = self.xp
        top, weights, total = log_normaliser(logits, self.ws)
        normaliser = xp.log(total)
        if not self.plain:
            reshape_distribution(
                weights,
                logits,
                top,
                temperature=self.temperature[samples],
                top_k=self.top_k[samples],
                top_p=self.top_p[samples],
            )
        number = len(self.tokens[int(samples[0])])
        uniform = np.asarray([self.streams[sample][number] for sample in samples.tolist()])
        chosen = draw(weights, uniform)
        greedy = np.flatnonzero(self.temperature[samples] == 0)
        if len(greedy):
            chosen[greedy] = xp.host(logits[xp.put(greedy)].argmax(axis=-1))
        rows = xp.put(np.arange(len(samples)))
        logprobs = xp.host((logits[rows, xp.put(chosen)] - top[:, 0]) - normaliser[:, 0])
        if not np.isfinite(logprobs).all():
            raise FloatingPointError(
                "the model's logits hold NaN or infinity; the weights are damaged or diverged"
            )
        for row, (sample, logprob) in enumerate(zip(samples.tolist(), logprobs.tolist(), strict=True)):
            self.logprobs[sample].append(logprob)
            wanted = self.requests[self.owner[sample]].top_logprobs
            if wanted:
                self.top[sample].append(
                    _likeliest(xp.host(logits[row]), float(xp.host(top[row] + normaliser[row])[0]), wanted)
                )
        return chosen

    def _record(self, samples: IntArray, chosen: IntArray) -> IntArray:
        """Append the drawn tokens; returns the samples that continue, ascending."""
        alive: list[int] = []
        for sample, token in zip(samples.tolist(), chosen.tolist(), strict=True):
            own = self.tokens[sample]
            own.append(token)
            request = self.requests[self.owner[sample]]
            if token in request.stop_tokens or (request.should_stop is not None and request.should_stop(own)):
                self.reasons[sample] = "stop"
            elif len(own) >= self.limit[sample]:
                self.reasons[sample] = "length"
            else:
                alive.append(sample)
        return np.asarray(sorted(alive), np.int64)

    def _collect(self, prompt_logprobs: Mapping[int, NDArray[np.float32]]) -> list[SampleOutput]:
        outputs = [
            SampleOutput(samples=[], prompt_logprobs=prompt_logprobs.get(index))
            for index in range(len(self.requests))
        ]
        for sample, owner in enumerate(self.owner.tolist()):
            reason = self.reasons[sample]
            assert reason is not None
            top = self.top[sample] if self.requests[owner].top_logprobs else None
            outputs[owner].samples.append(
                Sample(
                    tokens=self.tokens[sample],
                    logprobs=self.logprobs[sample],
                    finish_reason=reason,
                    top_logprobs=top,
                )
            )
        return outputs


def _likeliest(logits: Array, normaliser: float, count: int) -> dict[int, float]:
    """The ``count`` likeliest tokens with their logprobs, likeliest first."""
    count = min(count, len(logits))
    candidates = np.argpartition(-logits, count - 1)[:count]
    ordered = candidates[np.argsort(-logits[candidates], kind="stable")]
    return {int(token): float(logits[token]) - normaliser for token in ordered}
