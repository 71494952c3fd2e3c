import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_server.wire.fields import (
    WireError,
    content,
    double,
    doubles,
    entry,
    fields,
    integer,
    integers,
    length_delimited,
    number,
    repeated_field,
    string,
    text,
    to_signed,
)
from evsys_server.wire.tensors import MOST_AXES, MOST_ELEMENTS, Room, read_tensor, tensor

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_an_integer_comes_back(value):
    assert [to_signed(found) for _, found in fields(integer(3, value))] == ([value] if value else [])


@given(st.text(), st.floats(allow_nan=False), st.lists(INT64))
def test_a_message_comes_back_field_by_field(words, fraction, many):
    message = text(1, words) + number(2, fraction) + integers(16, tuple(many)) + doubles(4, {words: fraction})
    found = dict(fields(message))
    assert string(found[1]) == words
    assert double(found[2]) == fraction
    assert repeated_field(found.get(16, memoryview(b""))) == many
    key, value = entry(found[4])
    assert (key, double(value)) == (words, fraction)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        for _, value in fields(data):
            if not isinstance(value, int):
                read_tensor(value, Room())
    except WireError:
        pass


@given(st.binary(min_size=1, max_size=50), st.integers(1, 60))
def test_a_message_that_was_cut_off_is_refused(data, missing):
    message = length_delimited(1, data)
    with pytest.raises(WireError):
        list(fields(message[: -min(missing, len(data))]))


def test_a_number_without_an_end_is_refused():
    with pytest.raises(WireError, match="within a number"):
        list(fields(b"\x08" + b"\xff" * 20))


def test_a_negative_number_takes_ten_bytes_as_the_encoding_says():
    assert integer(1, -1) == b"\x08" + b"\xff" * 9 + b"\x01"


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_floats_are_float32_on_the_wire(values):
    array = np.array(values, dtype=np.float32)
    found = read_tensor(memoryview(tensor(array)), Room())
    assert found.dtype == np.float32
    assert np.array_equal(found, array)


def sparse(starts, columns, values, shape):
    return (
        length_delimited(
            2,
            length_delimited(1, np.array(values, "<f4").tobytes())
            + length_delimited(2, np.array(starts, "<i8").tobytes())
            + length_delimited(3, np.array(columns, "<i8").tobytes()),
        )
        + integer(3, 1)
        + integers(4, shape)
    )


def test_a_sparse_tensor_becomes_dense():
    found = read_tensor(memoryview(sparse([0, 2, 2, 3], [0, 2, 1], [1, 2, 3], (3, 3))), Room())
    assert found.tolist() == [[1, 0, 2], [0, 0, 0], [0, 3, 0]]


@pytest.mark.parametrize(
    ("starts", "columns", "shape"),
    [
        ([0, 2, 2, 3], [0, 3, 1], (3, 3)),
        ([0, 2, 1, 3], [0, 2, 1], (3, 3)),
        ([0, 2, 3], [0, 2, 1], (3, 3)),
        ([0, 1, 2, 3], [0, -1, 1], (3, 3)),
        ([0, 3], [0, 1, 2], (1, 2**40)),
    ],
)
def test_a_sparse_tensor_whose_indices_lead_outside_is_refused(starts, columns, shape):
    with pytest.raises(WireError):
        read_tensor(memoryview(sparse(starts, columns, [1, 2, 3], shape)), Room())


def test_bfloat16_and_int32_widen():
    half = length_delimited(1, np.array([0x3F80, 0xC000], "<u2").tobytes()) + integer(3, 4)
    whole = length_delimited(1, np.array([-5, 7], "<i4").tobytes()) + integer(3, 3)
    assert read_tensor(memoryview(half), Room()).tolist() == [1.0, -2.0]
    found = read_tensor(memoryview(whole), Room())
    assert (found.tolist(), found.dtype) == ([-5, 7], np.int64)


@pytest.mark.parametrize(
    "message",
    [
        length_delimited(1, b"\0" * 8) + integer(3, 9),
        length_delimited(1, b"\0" * 7) + integer(3, 1),
        length_delimited(1, b"\0" * 8) + integer(3, 1) + integers(4, (3,)),
        length_delimited(1, b"\0" * 8) + integer(3, 1) + integers(4, (-1, -2)),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(message):
    with pytest.raises(WireError):
        read_tensor(memoryview(message), Room())


def test_the_sparse_tensors_of_a_request_share_what_they_may_stand_for():
    room, half = Room(), memoryview(sparse([0, 0], [], [], (1, MOST_ELEMENTS // 2)))
    for _ in range(2):
        assert read_tensor(half, room).size == MOST_ELEMENTS // 2
    with pytest.raises(WireError, match="send fewer examples"):
        read_tensor(half, room)


def test_the_arrays_of_a_request_are_counted():
    room = Room(pieces=1)
    read_tensor(memoryview(tensor(np.ones(2))), room)
    with pytest.raises(WireError, match="examples and arrays"):
        read_tensor(memoryview(tensor(np.ones(2))), room)


@pytest.mark.parametrize(
    "shape",
    [integers(4, (1,) * (MOST_AXES + 1)), integer(4, 1) * (MOST_AXES + 1), integers(4, (1 << 40,) * 5000)],
)
def test_a_tensor_of_too_many_axes_is_refused(shape):
    with pytest.raises(WireError):
        read_tensor(memoryview(length_delimited(1, b"\0" * 4) + integer(3, 1) + shape), Room())


def test_content_of_a_number_is_refused():
    with pytest.raises(WireError):
        content(3)
