"""Caps: what doesn't fit is refused with a typed error, in time."""

import numpy as np
import pytest

from evsys.errors import BackendError
from evsys_backend_local.engine import memory
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.limits import ContextTooLongError
from evsys_backend_local.engine.memory import NotEnoughMemoryError, available_bytes
from evsys_backend_local.engine.sampler import SampleRequest


def example(length):
    tokens = np.arange(length) % 17
    return Example(tokens=tokens, targets=tokens)


def flat(_, logprobs):
    return 0.0, [np.ones_like(own) for own in logprobs], {}


def test_available_memory_is_a_number_here():
    free = available_bytes()
    assert free is not None
    assert 1 << 20 < free < 1 << 50


def test_the_kernels_figure_is_read(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 9 kB\nMemAvailable:       5 kB\n", encoding="ascii")
    assert memory._from_meminfo(path) == 5 * 1024
    assert memory._from_meminfo(tmp_path / "absent") is None


@pytest.mark.parametrize(("limit", "left"), [("1000", 700), ("100", 0), ("max", None)])
def test_a_containers_limit_counts_less_what_is_used_and_cannot_be_dropped(tmp_path, limit, left):
    (tmp_path / "memory.max").write_text(limit + "\n", encoding="ascii")
    (tmp_path / "memory.current").write_text("500\n", encoding="ascii")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 200\n", encoding="ascii")
    assert memory._left_in_cgroup(tmp_path) == left
    assert memory._left_in_cgroup(tmp_path / "absent") is None


def test_a_sequence_that_does_not_fit_into_memory_is_refused_and_leaves_no_gradient(make_engine, monkeypatch):
    engine = make_engine(max_context=400)
    model = engine.create_adapter(rank=2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    engine.forward_backward(model, [example(30)], flat)  # within a micro-batch nothing is asked
    model.grad.flat[...] = 0
    with pytest.raises(
        NotEnoughMemoryError, match="of up to 300 tokens need 0.0 GB.*lower max_length"
    ) as caught:
        engine.forward_backward(model, [example(300), example(20)], flat)
    assert isinstance(caught.value, BackendError)
    assert caught.value.facts["needed"] > 1000
    assert not model.grad.flat.any()
    monkeypatch.undo()
    engine.forward_backward(model, [example(300), example(20)], flat)
    assert model.grad.flat.any()


def test_what_cannot_be_trained_here_is_refused_before_it_is_made(make_engine, monkeypatch):
    engine = make_engine(np.float32)
    with pytest.raises(NotEnoughMemoryError, match="rank 1000000000.* need .*choose a lower lora_rank"):
        engine.create_adapter(rank=10**9, targets=("q_proj",))
    monkeypatch.setattr(memory, "available_bytes", lambda: 7 * engine.weights.params.flat.nbytes - 1)
    with pytest.raises(NotEnoughMemoryError, match="all weights.* need .*train an adapter"):
        engine.create_full()  # weights, gradient, two moments, scratch, and a gradient of each of two workers
    monkeypatch.setattr(memory, "available_bytes", lambda: 7 * engine.weights.params.flat.nbytes)
    engine.create_full()


def test_memory_that_the_workers_hold_already_is_not_asked_for_again(make_engine, monkeypatch):
    engine = make_engine(max_context=400)
    model = engine.create_adapter(rank=2)
    engine.forward_backward(model, [example(300)], flat, separable=True)
    held = sum(workspace.nbytes for workspace in engine.pool.workspaces)
    asked = []
    monkeypatch.setattr(
        "evsys_backend_local.engine.batch.require_memory", lambda needed, *_, **__: asked.append(needed)
    )
    engine.forward_backward(model, [example(300)], flat, separable=True)
    assert asked[0] < held


def test_what_exceeds_the_context_is_a_typed_error_with_both_numbers(make_engine):
    engine = make_engine()
    with pytest.raises(ContextTooLongError, match="65 tokens, but the model's context here is 64") as caught:
        engine.forward(engine.base, [example(65)])
    assert caught.value.facts == {"tokens": 65, "limit": 64}
    with pytest.raises(ContextTooLongError) as caught:
        engine.sample(engine.base, [SampleRequest(prompt=[1] * 60, max_tokens=5)])
    assert caught.value.facts == {"tokens": 65, "limit": 64}
    assert isinstance(caught.value, BackendError)
