"""Requests that sample: each gets a promise at once, and all are drawn alongside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from evsys.types import SampleResult, SamplingParams
from evsys_runtime.serving.off_loop import off_loop
from evsys_server import reading
from evsys_server.batches import Drawing
from evsys_server.errors import RefusedError
from evsys_server.promises import Answer, Promise, proto_answer
from evsys_server.service import Service
from evsys_server.sessions import SamplingSession
from evsys_server.wire.sampling import encode_sample

__all__ = ["SamplingApi"]

MOST_SAMPLES = 4096
MOST_LIKELIEST = 20
"""Of the likeliest tokens that one position may ask for, as OpenAI's protocol has it: each is a row of the answer."""

DEFAULT_TOKENS = 1024
"""Longest answer where neither the request nor the model's context says anything."""


@attrs.frozen(kw_only=True, eq=False)
class _Wanted:
    """A sample request."""

    drawing: Drawing
    top_sampled: int
    top_prompt: int
    prompt_last: int | None


class SamplingApi:
    """The sampling side of the protocol."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def create_session(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Say what will be sampled from."""
        session = self.service.sessions.active(reading.name(body, "session_id"))
        number = reading.whole(body, "sampling_session_seq_id")
        source = reading.optional_name(body, "model_path") or reading.name(body, "base_model")
        sampling = SamplingSession(
            id=f"{session.id}:sample:{number}",
            session_id=session.id,
            number=number,
            source=source,
            base_model=self.service.samplers.base_of(source),
        )
        session.samplers.setdefault(sampling.id, sampling)
        return {"type": "create_sampling_session", "sampling_session_id": sampling.id}

    def find(self, sampler_id: str) -> SamplingSession:
        """A sampling session.

        Raises:
            RefusedError: there is none.
        """
        session = self.service.sessions.find(sampler_id.partition(":")[0])
        sampling = session.samplers.get(sampler_id) if session is not None else None
        if sampling is None:
            raise RefusedError(
                404,
                f"there is no sampler {sampler_id!r} here: its session ended, the server was restarted, or it had no name "
                "and others were used since",
            )
        return sampling

    def name_batch(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take note of requests to draw together, or of those among them that won't come."""
        sampling = self.find(reading.name(body, "sampling_session_id"))
        self.service.sessions.active(sampling.session_id)
        batch_id = reading.name(body, "id")
        if body.get("without") is None:
            self.service.batches.name(batch_id, sampling, reading.names(body, "requests"))
        else:
            self.service.batches.leave_out(batch_id, reading.names(body, "without"))
        return {"type": "sample_batch"}

    def sample(self, body: Mapping[str, Any]) -> Promise:
        """Draw samples of one prompt."""
        sampling = self.find(reading.name(body, "sampling_session_id"))
        seq_id = reading.whole(body, "seq_id")
        self.service.sessions.active(sampling.session_id).samplers.move_to_end(sampling.id)
        request_id = f"{sampling.id}:{seq_id}"
        known = self.service.promises.find(request_id)
        if known is not None:
            return known
        wanted = self._parse_request(body, sampling, seq_id)
        if not self.service.batches.wants(sampling, wanted.drawing):  # there is room for those
            self.service.room_for("sample")
            if self.service.working >= self.service.limits.sampling:
                raise RefusedError(
                    429, f"{self.service.working} requests are sampled or wait here already", retry_after=1
                )
        ids = [f"{request_id}:{index}" for index in range(wanted.drawing.n)]
        promise = self.service.promises.open(request_id, sampling.session_id, sample_sequence_ids=ids)
        self.service.start(promise, self._draw(sampling, wanted))
        return promise

    async def _draw(self, sampling: SamplingSession, wanted: _Wanted) -> Answer:
        result = await self.service.batches.draw(sampling, wanted.drawing)
        tokens = sum(len(sequence.tokens) for sequence in result.sequences) + len(wanted.drawing.prompt)
        return await off_loop(tokens, lambda: proto_answer(_encoded(result, wanted)))

    def _parse_request(self, body: Mapping[str, Any], sampling: SamplingSession, seq_id: int) -> _Wanted:
        for key in ("target_prompt_logprobs", "prompt_alt_tokens_k", "record_stability_info"):
            if body.get(key):
                raise RefusedError(400, f"{key}: not served here")
        prompt = reading.prompt_tokens(body.get("prompt"))
        n = reading.whole(body, "num_samples", 1, low=1)
        if n > MOST_SAMPLES:
            raise RefusedError(400, f"num_samples: at most {MOST_SAMPLES}, got {n}")
        top_sampled = reading.whole(body, "topk_sample_logprobs", 0)
        top_prompt = reading.whole(body, "topk_prompt_logprobs", 0)
        for key, asked, capability in (
            ("topk_sample_logprobs", top_sampled, "top_logprobs"),
            ("topk_prompt_logprobs", top_prompt, "top_prompt_logprobs"),
        ):
            if asked > MOST_LIKELIEST:
                raise RefusedError(400, f"{key}: at most {MOST_LIKELIEST}, got {asked}")
            if asked and capability not in self.service.engine.capabilities:
                raise RefusedError(400, f"{key}: this backend doesn't report them")
        prompt_logprobs = reading.flag(body, "prompt_logprobs")
        last = reading.optional_whole(body, "prompt_logprobs_last_n", low=1)
        params = self._params(reading.section(body, "sampling_params"), sampling, seq_id, len(prompt))
        return _Wanted(
            drawing=Drawing(
                prompt=prompt,
                n=n,
                params=attrs.evolve(
                    params,
                    prompt_logprobs=prompt_logprobs,
                    top_logprobs=top_sampled,
                    top_prompt_logprobs=top_prompt,
                ),
            ),
            top_sampled=top_sampled,
            top_prompt=top_prompt,
            prompt_last=last if last is not None and last < len(prompt) else None,
        )

    def _params(
        self, given: Mapping[str, Any], sampling: SamplingSession, seq_id: int, prompt_tokens: int
    ) -> SamplingParams:
        base = self.service.engine.bases[sampling.base_model]
        most = reading.optional_whole(given, "max_tokens", low=1)
        if most is None:
            room = None if base.context_length is None else base.context_length - prompt_tokens
            most = DEFAULT_TOKENS if room is None else max(1, room)
        stop, ends = given.get("stop"), tuple(base.tokenizer.eos_token_ids)
        texts, ids = _stops(stop, ends)
        seed = reading.optional_whole(given, "seed", low=None)
        top_k = reading.whole(given, "top_k", -1, low=-1)
        return SamplingParams(
            max_tokens=most,
            temperature=reading.number(given, "temperature", 1.0),
            top_p=reading.number(given, "top_p", 1.0),
            top_k=top_k if top_k > 0 else None,
            stop=texts,
            stop_token_ids=ids,
            seed=_own_seed(sampling, seq_id) if seed is None else seed % 2**63,
        )


def _encoded(result: SampleResult, wanted: _Wanted) -> bytes:
    return encode_sample(
        result,
        top_sampled=wanted.top_sampled,
        top_prompt=wanted.top_prompt,
        prompt_last=wanted.prompt_last,
    )


def _stops(value: object, ends: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Stop texts and ids: nothing said means the model's own ends, ids alone replace those, texts come alongside them."""
    if value is None:
        return (), ends
    found = [value] if isinstance(value, str) else value
    if isinstance(found, list):
        if all(isinstance(stop, str) and stop for stop in found) and found:
            return tuple(found), ends
        if set(map(type, found)) <= {int}:
            return (), tuple(reading.token_ids(found, "stop"))
    raise RefusedError(400, "stop: expected a string, a list of strings, or a list of token ids")


def _own_seed(sampling: SamplingSession, seq_id: int) -> int:
    """A seed for a request without one: by its place in the session, whenever it comes in."""
    return int(
        np.random.SeedSequence([sampling.number, seq_id]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )
