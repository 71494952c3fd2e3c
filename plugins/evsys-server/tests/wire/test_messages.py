import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Datum, SampledSequence, SampleResult
from evsys_server.wire.fields import WireError, integer, length_delimited, text
from evsys_server.wire.sampling import encode_sample, read_sample
from evsys_server.wire.training import (
    ForwardBackward,
    Output,
    encode_output,
    encode_request,
    read_address,
    read_output,
    read_request,
)

TOKENS = np.array([1, 2, 3], np.int64)
INPUTS = {
    "target_tokens": np.array([[2, 5], [3, 6], [4, 7]], np.int64),
    "weights": np.array([0.0, 0.5, 1.0], np.float32),
}
REQUEST = ForwardBackward(
    model_id="s:train:0",
    seq_id=7,
    data=(Datum(tokens=TOKENS, loss_inputs=INPUTS),),
    loss_fn="ppo",
    loss_params={"clip_low_threshold": 0.8, "mode": "x"},
    forward_only=True,
)


def test_a_request_comes_back():
    found = read_request(encode_request(REQUEST))
    assert (found.model_id, found.seq_id, found.loss_fn) == ("s:train:0", 7, "ppo")
    assert found.loss_params == REQUEST.loss_params
    assert found.forward_only
    (datum,) = found.data
    assert datum.tokens.tolist() == TOKENS.tolist()
    assert {name: array.tolist() for name, array in datum.loss_inputs.items()} == {
        name: array.tolist() for name, array in INPUTS.items()
    }


def test_the_settings_of_clients_before_texts_are_read():
    body = encode_request(REQUEST)
    older = text(1, "m") + integer(2, 1) + body[body.index(b"ppo") - 2 :].split(b"\x30\x01")[0]
    assert read_request(older).loss_params == {"clip_low_threshold": 0.8}


@given(st.integers(0, 400))
def test_the_address_is_read_from_a_beginning(size):
    body = encode_request(REQUEST)
    whole = len(text(1, REQUEST.model_id) + integer(2, REQUEST.seq_id))
    assert read_address(body[:size]) == (("s:train:0", 7) if size >= whole else None)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_request_or_refused(data):
    try:
        read_request(data)
    except ValueError:
        return


def test_an_image_is_refused_by_its_place():
    image = length_delimited(3, length_delimited(1, length_delimited(2, b"png")))
    with pytest.raises(WireError, match="example 0: only text"):
        read_request(text(1, "m") + integer(2, 1) + image)


def test_arrays_of_other_lengths_are_refused_by_their_place():
    wrong = {"weights": np.ones(2, np.float32)}
    good = encode_request(ForwardBackward(model_id="m", seq_id=1, data=(), loss_fn="x"))
    datum = length_delimited(1, length_delimited(1, length_delimited(1, TOKENS.astype("<i4").tobytes())))
    from evsys_server.wire.fields import entries
    from evsys_server.wire.tensors import tensor

    inputs = entries(2, {name: length_delimited(2, tensor(array)) for name, array in wrong.items()})
    with pytest.raises(ValueError, match="example 0: loss input 'weights' has shape 2"):
        read_request(good + length_delimited(3, datum + inputs))


@pytest.mark.parametrize("shapes", [[(3,), (2,)], [(3, 2), (1, 2)], [(3, 2), (2, 4), (1, 4)], [(3,), (2, 2)]])
def test_an_output_comes_back_whatever_the_shapes(shapes):
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    found = read_output(encode_output(Output(logprobs=arrays, metrics={"loss:sum": 1 / 3})))
    assert [array.tolist() for array in found.logprobs] == [array.tolist() for array in arrays]
    assert found.metrics == {"loss:sum": 1 / 3}  # metrics are float64


def test_a_sample_comes_back():
    result = SampleResult(
        sequences=[
            SampledSequence(
                tokens=[5, 6],
                logprobs=[-0.5, -1.5],
                finish_reason="length",
                top_logprobs=[{5: -0.5, 1: -2.0}, {6: -1.5}],
            ),
            SampledSequence(tokens=[], logprobs=[], finish_reason="stop"),
        ],
        prompt_logprobs=[None, -0.25, -0.75],
        top_prompt_logprobs=[None, {3: -0.25}, {1: -0.125, 2: -0.75}],
    )
    found = read_sample(encode_sample(result, top_sampled=2, top_prompt=2))
    assert found.sequences[0] == result.sequences[0]
    assert (found.sequences[1].tokens, found.sequences[1].finish_reason) == ([], "stop")
    assert found.prompt_logprobs == result.prompt_logprobs
    assert found.top_prompt_logprobs == result.top_prompt_logprobs


def test_only_the_last_logprobs_of_a_prompt_are_told_where_those_are_asked_for():
    result = SampleResult(
        sequences=[], prompt_logprobs=[None, -1.0, -2.0], top_prompt_logprobs=[None, {1: -1.0}, {2: -2.0}]
    )
    found = read_sample(encode_sample(result, top_prompt=1, prompt_last=1))
    assert found.prompt_logprobs == [None, None, -2.0]
    assert found.top_prompt_logprobs == [None, None, {2: -2.0}]
