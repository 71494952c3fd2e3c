"""A computation ends soon after its flag is set, and leaves nothing half done."""

import threading

import numpy as np
import pytest

from evsys_backend_local.engine.abort import Abort, AbortedError
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.workers import blas_threads


@pytest.fixture
def engine(make_engine):
    return make_engine(max_rows=16)


def test_a_flag_counts_for_all_that_is_made_under_it_and_not_the_other_way():
    above = Abort()
    one, other = Abort(above), Abort(above)
    one.set()
    assert (above.is_set(), one.is_set(), other.is_set()) == (False, True, False)
    other.check()
    above.set()
    with pytest.raises(AbortedError):
        other.check()


def test_decoding_ends_at_the_next_step(engine):
    abort, lengths = Abort(), []

    def seen(tokens):
        lengths.append(len(tokens))
        if len(tokens) == 3:
            abort.set()
        return False

    request = SampleRequest(prompt=[1, 2], max_tokens=40, should_stop=seen)
    with pytest.raises(AbortedError):
        engine.sample(engine.base, [request], abort=abort)
    assert lengths == [1, 2, 3]
    assert len(engine.sample(engine.base, [request])[0].samples[0].tokens) == 40


@pytest.mark.parametrize("separable", [True, False])
def test_a_pass_ends_between_packs_without_a_gradient(engine, examples, curved_loss, separable):
    abort, model, calls = Abort(), engine.create_adapter(rank=3), []
    assert len(engine.batch(examples).parts) > 2

    def loss(indices, logprobs):
        calls.append(indices)
        abort.set()
        return curved_loss(indices, logprobs)

    with pytest.raises(AbortedError):
        engine.forward_backward(model, examples, loss, separable=separable, abort=abort)
    assert 1 <= len(calls) <= engine.workers
    assert not model.grad.flat.any()
    engine.forward_backward(model, examples, curved_loss, separable=separable)
    assert model.grad.flat.any()


def test_nothing_is_computed_once_the_flag_is_set(engine, examples):
    abort = Abort()
    abort.set()
    for call in (
        lambda: engine.forward(engine.base, examples, abort=abort),
        lambda: engine.compute_logprobs(engine.base, [[1, 2, 3]], abort=abort),
        lambda: engine.sample(engine.base, [SampleRequest(prompt=[1], max_tokens=2)], abort=abort),
    ):
        with pytest.raises(AbortedError):
            call()


def test_the_wait_for_another_engine_of_the_process_ends_too(make_engine):
    engine, abort, ended = make_engine(np.float32), Abort(), threading.Event()

    def waits():
        with pytest.raises(AbortedError):
            engine.compute_logprobs(engine.base, [[1, 2, 3]], abort=abort)
        ended.set()

    with blas_threads(1):
        thread = threading.Thread(target=waits)
        thread.start()
        abort.set()
        assert ended.wait(20)
    thread.join(20)
