"""The messages of `forward_backward`: the request with its examples, and the result with their logprobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum
from evsys_server.wire.fields import (
    WireError,
    boolean,
    content,
    double,
    doubles,
    entries,
    entry,
    fields,
    integer,
    length_delimited,
    number,
    string,
    text,
    to_signed,
)
from evsys_server.wire.tensors import Room, batched_tensor, read_batched_tensor, read_tensor, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ForwardBackward",
    "Output",
    "encode_output",
    "encode_request",
    "read_address",
    "read_output",
    "read_request",
]

RECORD = "ArrayRecord"
LOGPROBS = "logprobs"


@attrs.frozen(kw_only=True, eq=False)
class ForwardBackward:
    """The request. `loss_params` has the loss's settings by the names of the wire, numbers or texts."""

    model_id: str
    seq_id: int
    data: tuple[Datum, ...]
    loss_fn: str
    loss_params: Mapping[str, float | str] = attrs.field(factory=dict)
    forward_only: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Output:
    """The answer: one array of logprobs an example, and metrics whose names end in how they are merged."""

    logprobs: Sequence[NDArray[Any]]
    metrics: Mapping[str, float]


def read_address(body: bytes) -> tuple[str, int] | None:
    """Whose request a body is and its sequence id, as far as its beginning says; None where that can't be read.

    A refused request still takes its place in the order, so these are read even if the rest is damaged or cut off.
    """
    model_id, seq_id = "", 0
    try:
        for field, value in fields(body):
            if field == 1:
                model_id = string(value)
            elif field == 2:
                seq_id = to_signed(value)
            if model_id and seq_id:
                return model_id, seq_id
    except WireError:
        pass
    return None


def read_request(body: bytes) -> ForwardBackward:
    """A request.

    Raises:
        WireError: the bytes are not a request.
        ValueError: an example's arrays don't fit each other.
    """
    model_id, loss_fn, seq_id, forward_only = "", "", 0, False
    data, room = list[Datum](), Room()
    numbers: dict[str, float | str] = {}
    settings: dict[str, float | str] = {}
    for field, value in fields(body):
        if field == 1:
            model_id = string(value)
        elif field == 2:
            seq_id = to_signed(value)
        elif field == 3:
            data.append(_datum(content(value), len(data), room))
        elif field == 4:
            loss_fn = string(value)
        elif field == 5:
            key, found = entry(value)
            numbers[key] = 0.0 if found is None else double(found)
        elif field == 6:
            forward_only = bool(value)
        elif field == 7:
            key, found = entry(value)
            settings[key] = _setting(found)
    return ForwardBackward(
        model_id=model_id,
        seq_id=seq_id,
        data=tuple(data),
        loss_fn=loss_fn,
        loss_params=settings or numbers,  # newer clients write both
        forward_only=forward_only,
    )


def _setting(value: int | memoryview | None) -> float | str:
    for field, part in fields(b"" if value is None else content(value)):
        if field == 1:
            return double(part)
        if field == 2:
            return string(part)
    return 0.0


def _datum(message: memoryview, index: int, room: Room) -> Datum:
    room.take_piece()
    tokens: list[NDArray[np.int64]] = []
    inputs: dict[str, NDArray[Any]] = {}
    for field, value in fields(message):
        if field == 1:
            room.take_piece()
            tokens.append(_chunk(content(value), index))
        elif field == 2:
            key, found = entry(value)
            inputs[key] = read_tensor(memoryview(b"") if found is None else content(found), room)
    try:
        joined = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
        return Datum(tokens=joined, loss_inputs=inputs)
    except ValueError as exc:
        raise ValueError(f"example {index}: {exc}") from exc


def _chunk(message: memoryview, index: int) -> NDArray[np.int64]:
    for field, value in fields(message):
        if field != 1:
            break
        for inner, tokens in fields(content(value)):
            if inner == 1:
                found = content(tokens)
                if len(found) % 4:
                    raise WireError(f"example {index}: the tokens have {len(found)} bytes")
                return np.frombuffer(found, dtype="<i4").astype(np.int64)
        return np.zeros(0, np.int64)
    raise WireError(f"example {index}: only text is served here, no images or audio")


def encode_request(request: ForwardBackward) -> bytes:
    """A request as a client sends it."""
    numbers = {key: value for key, value in request.loss_params.items() if not isinstance(value, str)}
    return b"".join(
        (
            text(1, request.model_id),
            integer(2, request.seq_id),
            *(length_delimited(3, _encode_datum(datum)) for datum in request.data),
            text(4, request.loss_fn),
            doubles(5, numbers),
            boolean(6, request.forward_only),
            entries(
                7,
                {
                    key: length_delimited(2, text(2, value) if isinstance(value, str) else number(1, value))
                    for key, value in request.loss_params.items()
                },
            ),
        )
    )


def _encode_datum(datum: Datum) -> bytes:
    tokens = length_delimited(1, np.asarray(datum.tokens).astype("<i4").tobytes())
    inputs = {key: length_delimited(2, tensor(array)) for key, array in datum.loss_inputs.items()}
    return length_delimited(1, length_delimited(1, tokens)) + entries(2, inputs)


def encode_output(output: Output) -> bytes:
    """A result. Examples whose logprobs differ in their second axis go into records of their own."""
    return b"".join(
        (
            text(1, RECORD),
            *(length_delimited(2, record) for record in _records(output.logprobs)),
            doubles(3, output.metrics),
        )
    )


def _records(logprobs: Sequence[NDArray[Any]]) -> Iterator[bytes]:
    for _, group in groupby(logprobs, key=lambda array: array.shape[1:]):
        arrays = list(group)
        values = {LOGPROBS: length_delimited(2, batched_tensor(arrays))}
        yield text(1, RECORD) + entries(2, values) + integer(3, len(arrays))


def read_output(body: bytes) -> Output:
    """A result as a client reads it.

    Raises:
        WireError: the bytes are not a result.
    """
    logprobs: list[NDArray[Any]] = []
    metrics: dict[str, float] = {}
    for field, value in fields(body):
        if field == 2:
            for inner, part in fields(content(value)):
                if inner == 2:
                    key, found = entry(part)
                    if key == LOGPROBS and found is not None:
                        logprobs += read_batched_tensor(content(found))
        elif field == 3:
            key, found = entry(value)
            metrics[key] = 0.0 if found is None else double(found)
    return Output(logprobs=logprobs, metrics=metrics)
