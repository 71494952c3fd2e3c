"""The official client: its messages against our codec, and the client itself, unchanged, against our server."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from evsys.types import Datum, SampledSequence, SampleResult
from evsys_server.app import make_app
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

messages = pytest.importorskip(
    "tinker.proto.tinker_public_pb2", reason="tinker isn't installed; `nox -s tinker` runs these tests"
)
SCRIPT = Path(__file__).parent / "support" / "official_client.py"

FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def requests(draw) -> ForwardBackward:
    data = []
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(1, 6))
        shape = (size, draw(st.integers(1, 3))) if draw(st.booleans()) else (size,)
        targets = draw(arrays.arrays(np.int64, shape, elements=st.integers(0, 2**31 - 1)))
        weights = draw(arrays.arrays(np.float32, (size,), elements=FLOATS))
        tokens = draw(arrays.arrays(np.int64, (size,), elements=st.integers(0, 2**31 - 1)))
        data.append(Datum(tokens=tokens, loss_inputs={"target_tokens": targets, "weights": weights}))
    params = draw(
        st.dictionaries(st.sampled_from(["beta", "clip_low_threshold"]), st.floats(allow_nan=False))
    )
    return ForwardBackward(
        model_id=draw(st.text(min_size=1)),
        seq_id=draw(st.integers(1, 2**31 - 1)),
        data=tuple(data),
        loss_fn=draw(st.text()),
        loss_params=params,
        forward_only=draw(st.booleans()),
    )


def same(one: ForwardBackward, other: ForwardBackward) -> None:
    for name in ("model_id", "seq_id", "loss_fn", "loss_params", "forward_only"):
        assert getattr(one, name) == getattr(other, name)
    assert len(one.data) == len(other.data)
    for here, there in zip(one.data, other.data, strict=True):
        assert np.array_equal(here.tokens, there.tokens)
        assert set(here.loss_inputs) == set(there.loss_inputs)
        for name, array in here.loss_inputs.items():
            assert np.array_equal(array, there.loss_inputs[name])
            assert array.dtype == there.loss_inputs[name].dtype


@given(requests())
@settings(max_examples=50)
def test_the_official_messages_read_our_requests_and_write_what_we_read(request):
    message = messages.ForwardBackwardRequest()
    message.ParseFromString(encode_request(request))
    assert (message.model_id, message.seq_id, message.loss_fn) == (
        request.model_id,
        request.seq_id,
        request.loss_fn,
    )
    assert message.forward_only == request.forward_only
    assert dict(message.loss_fn_config) == request.loss_params
    for ours, theirs in zip(request.data, message.data, strict=True):
        tokens = np.frombuffer(theirs.model_input[0].encoded_text.tokens, np.int32)
        assert np.array_equal(tokens, ours.tokens)
    written = message.SerializeToString()
    same(read_request(written), request)
    assert read_address(written) == (request.model_id, request.seq_id)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.floats(allow_nan=False), st.booleans())
def test_the_official_client_reads_our_outputs(sizes, value, wide):
    from tinker.proto.response_conv import deserialize_forward_backward_output

    logprobs = [np.arange(size * 2, dtype=np.float32).reshape((size, 2) if wide else -1) for size in sizes]
    body = encode_output(Output(logprobs=logprobs, metrics={"loss:sum": value}))
    found = deserialize_forward_backward_output(body)
    assert found.metrics == {"loss:sum": value}
    for ours, theirs in zip(logprobs, found.loss_fn_outputs, strict=True):
        assert np.array_equal(theirs["logprobs"].to_numpy(), ours)
    message = messages.ForwardBackwardOutput()
    message.ParseFromString(body)
    again = read_output(message.SerializeToString())
    assert again.metrics == found.metrics
    assert all(np.array_equal(a, b) for a, b in zip(again.logprobs, logprobs, strict=True))


def test_the_official_client_reads_our_samples():
    from tinker.proto.response_conv import deserialize_sample_response

    ours = SampleResult(
        sequences=[
            SampledSequence(
                tokens=[5, 6],
                logprobs=[-0.5, -1.5],
                finish_reason="length",
                top_logprobs=[{5: -0.5, 1: -2.0}, {6: -1.5}],
            ),
            SampledSequence(tokens=[7], logprobs=[-0.25], finish_reason="stop"),
        ],
        prompt_logprobs=[None, -0.25],
        top_prompt_logprobs=[None, {3: -0.25, 4: -1.0}],
    )
    body = encode_sample(ours, top_sampled=2, top_prompt=2)
    found = deserialize_sample_response(body)
    assert [list(one.tokens) for one in found.sequences] == [[5, 6], [7]]
    assert [one.stop_reason for one in found.sequences] == ["length", "stop"]
    assert [list(one.logprobs) for one in found.sequences] == [[-0.5, -1.5], [-0.25]]
    assert list(found.prompt_logprobs) == [None, -0.25]
    message = messages.SampleResponse()
    message.ParseFromString(body)
    again = read_sample(message.SerializeToString())
    assert again.prompt_logprobs == ours.prompt_logprobs
    assert again.top_prompt_logprobs == ours.top_prompt_logprobs
    if hasattr(message.sequences[0], "topk_sampled_logprobs"):  # not in the oldest version
        top = found.sequences[0].topk_logprobs_np
        assert np.asarray(top.token_ids).tolist() == [[5, 1], [6, 0]]
        assert np.asarray(top.logprobs).tolist() == [[-0.5, -2.0], [-1.5, -99999.0]]
        assert again.sequences[0].top_logprobs == ours.sequences[0].top_logprobs


def official(folder: Path, base_url: str, *arguments: str) -> dict:
    """What the official client saw. It runs elsewhere and finds no module of evsys."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), base_url, *arguments],
        cwd=folder,
        env={**os.environ, "TINKER_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["mock", "local"])
def seen(request, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp(request.param)

    async def main() -> dict:
        async with make_app(backend=request.param, directory=folder / "server", key="tml-key") as base_url:
            return await asyncio.to_thread(official, folder, base_url, "tml-key")

    return asyncio.run(main())


def test_it_imports_nothing_of_evsys(seen):
    assert seen["modules"] == []
    assert tuple(map(int, seen["version"].split(".")[:2])) >= (0, 25)


def test_it_trains(seen):
    assert seen["models"] == ["evsys/tiny"]
    assert seen["info"] == ["evsys/tiny", True, 4]
    losses = [loss for loss, _ in seen["steps"]]
    assert losses == sorted(losses, reverse=True)
    assert all(norm > 0 for _, norm in seen["steps"])
    assert len(seen["logprobs"]) == 23
    assert sum(seen["logprobs"]) == pytest.approx(-seen["before"], rel=1e-5)


def test_a_client_from_a_state_goes_on_where_the_other_was(seen):
    assert seen["after"] == [seen["before"]] * 2
    old, restored, fresh = seen["then"]
    assert restored == old
    assert fresh == old  # the loss and the gradient before the optimiser's own memory shows
    assert seen["path"].startswith("tinker://")


def test_it_samples(seen):
    tokens, logprobs, reason, count = seen["sample"]
    assert (len(tokens), len(logprobs), reason, count) == (6, 6, "length", 2)
    assert seen["prompt_logprobs"][0] is None
    assert len(seen["prompt_logprobs"]) == 5
    assert len(seen["compute_logprobs"]) == 24
    assert seen["live"] == tokens
    assert seen["burst"] >= 32
    if seen["topk"] is not None:
        rows, sampled = seen["topk"]
        assert [row[0] for row in rows] == sampled
        assert all(len(set(row)) == 3 for row in rows)


def test_sampler_and_trainer_agree_on_logprobs(seen):
    assert seen["compute_logprobs"][1:5] == pytest.approx(seen["prompt_logprobs"][1:], abs=1e-5)


def test_its_losses_are_served(seen):
    assert set(seen["losses"]) == {"importance_sampling", "ppo", "cispo", "dro"}
    assert all(np.isfinite(value) for value in seen["losses"].values())
    assert seen["losses"]["ppo"] != seen["losses"]["importance_sampling"]


def test_its_own_losses_work_in_two_passes(seen):
    assert np.isfinite(seen["two_passes"])
    if "own_custom_loss" in seen:
        assert seen["own_custom_loss"] == pytest.approx(seen["two_passes"], rel=1e-4)


def test_its_chunks_are_one_batch(seen):
    count, loss, norm = seen["chunks"]
    assert count == 2500
    assert loss > 2500
    assert norm > 0


def test_what_it_lists_is_what_it_saved(seen):
    run = seen["path"].removeprefix("tinker://").partition("/")[0]
    assert run in seen["runs"]
    assert seen["path"] in seen["checkpoints"]
    assert seen["weights_info"] == ["evsys/tiny", True, 4]
    assert seen["sessions"] >= 1
    assert set(seen["after_delete"]) == set(seen["checkpoints"]) - {seen["path"]}


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("unknown", "BadRequestError", "base model 'gpt-9' isn't served here; served: evsys/tiny"),
        ("conflict", "RequestFailedError", "exists already"),
        ("refused", "RequestFailedError", "there is no loss 'stable_reinforce' here"),
        ("rejected", "RequestFailedError", "outside"),
        ("outside", "RequestFailedError", "outside"),
        ("missing", "NotFoundError", "may have expired or been deleted"),
        ("topk_prompt", "BadRequestError", "topk_prompt_logprobs: at most 20"),
    ],
)
def test_what_cant_be_is_told_at_once_and_the_client_goes_on(seen, what, error, message):
    assert seen[what][0] == error
    assert message in seen[what][1]
    assert seen["usable_afterwards"]
