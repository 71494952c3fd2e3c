"""The answer to a sample request: sequences with logprobs, logprobs of the prompt, and the likeliest tokens of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evsys.types import SampledSequence, SampleResult
from evsys_server.wire.fields import WireError, content, fields, integer, length_delimited, to_signed
from evsys_server.wire.tensors import buffer

__all__ = ["encode_sample", "read_sample"]

_STOP, _LENGTH = 0, 1
NO_LOGPROB = -99999.0
"""Is in a cell of the likeliest tokens that nothing is known about, with token 0."""

type _Tops = Sequence[Mapping[int, float] | None]


def encode_sample(
    result: SampleResult, *, top_sampled: int = 0, top_prompt: int = 0, prompt_last: int | None = None
) -> bytes:
    """A result as a message.

    Args:
        result: the samples.
        top_sampled: how many of the likeliest tokens each sampled position was asked for.
        top_prompt: the same for each position of the prompt.
        prompt_last: return only this many of the prompt's last logprobs; None returns all.
    """
    parts = [length_delimited(1, _sequence(sequence, top_sampled)) for sequence in result.sequences]
    if result.prompt_logprobs is not None:
        values = np.array([np.nan if x is None else x for x in result.prompt_logprobs], dtype="<f4")
        if prompt_last is not None:
            values[: len(values) - prompt_last] = np.nan
        parts.append(length_delimited(2, values.tobytes()))
    if top_prompt and result.top_prompt_logprobs is not None:
        rows = list(result.top_prompt_logprobs)
        if prompt_last is not None:
            rows[: len(rows) - prompt_last] = [None] * (len(rows) - prompt_last)
        parts.append(length_delimited(3, _tops(rows, top_prompt)))
    return b"".join(parts)


def _sequence(sequence: SampledSequence, top: int) -> bytes:
    parts = [
        integer(1, _LENGTH if sequence.finish_reason == "length" else _STOP),
        length_delimited(2, np.array(sequence.tokens, dtype="<i4").tobytes()),
        length_delimited(3, np.array(sequence.logprobs, dtype="<f4").tobytes()),
    ]
    if top and sequence.top_logprobs is not None:
        parts.append(length_delimited(4, _tops(sequence.top_logprobs, top)))
    return b"".join(parts)


def _tops(rows: _Tops, width: int) -> bytes:
    tokens = np.zeros((len(rows), width), "<i4")
    logprobs = np.full((len(rows), width), NO_LOGPROB, "<f4")
    for place, row in enumerate(rows):
        best = sorted((row or {}).items(), key=lambda item: -item[1])[:width]
        for rank, (token, logprob) in enumerate(best):
            tokens[place, rank], logprobs[place, rank] = token, logprob
    return b"".join(
        (
            length_delimited(1, tokens.tobytes()),
            length_delimited(2, logprobs.tobytes()),
            integer(3, width),
            integer(4, len(rows)),
        )
    )


def read_sample(body: bytes) -> SampleResult:
    """A result as a client reads it.

    Raises:
        WireError: the bytes are not a result.
    """
    sequences: list[SampledSequence] = []
    prompt: list[float | None] | None = None
    tops: list[Mapping[int, float] | None] | None = None
    for field, value in fields(body):
        if field == 1:
            sequences.append(_read_sequence(content(value)))
        elif field == 2:
            prompt = [None if np.isnan(x) else float(x) for x in buffer(content(value), "<f4")]
        elif field == 3:
            tops = [row or None for row in _read_tops(content(value))]
    return SampleResult(sequences=sequences, prompt_logprobs=prompt, top_prompt_logprobs=tops)


def _read_sequence(message: memoryview) -> SampledSequence:
    reason, tokens, logprobs, tops = _STOP, memoryview(b""), memoryview(b""), None
    for field, value in fields(message):
        if field == 1:
            reason = to_signed(value)
        elif field == 2:
            tokens = content(value)
        elif field == 3:
            logprobs = content(value)
        elif field == 4:
            tops = _read_tops(content(value))
    return SampledSequence(
        tokens=[int(x) for x in buffer(tokens, "<i4")],
        logprobs=[float(x) for x in buffer(logprobs, "<f4")],
        finish_reason="length" if reason == _LENGTH else "stop",
        top_logprobs=tops,
    )


def _read_tops(message: memoryview) -> list[dict[int, float]]:
    tokens = logprobs = memoryview(b"")
    width = length = 0
    for field, value in fields(message):
        if field == 1:
            tokens = content(value)
        elif field == 2:
            logprobs = content(value)
        elif field == 3:
            width = to_signed(value)
        elif field == 4:
            length = to_signed(value)
    ids, values = buffer(tokens, "<i4"), buffer(logprobs, "<f4")
    if len(ids) != width * length or len(values) != len(ids):
        raise WireError(f"{len(ids)} cells are not {length} rows of {width}")
    return [
        {
            int(token): float(logprob)
            for token, logprob in zip(ids[row : row + width], values[row : row + width], strict=True)
            if logprob != NO_LOGPROB
        }
        for row in range(0, len(ids), width or 1)
    ]
