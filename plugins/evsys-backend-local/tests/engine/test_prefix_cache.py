"""Prompts' keys and values kept between calls: computed once, never a change of a bit, in bounded memory."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evsys_backend_local.engine import panels, prefill
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.prefix_cache import Key, PrefixCache, digests
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.workers import blas_info

CHUNK = 4


@pytest.fixture
def engine(make_engine):
    return cached(make_engine(np.float32, block_rows=16, max_rows=128))


def cached(engine, limit=1 << 20):
    engine.prefixes = PrefixCache(limit, CHUNK)
    return engine


@pytest.fixture
def rows(monkeypatch):
    """Rows of each pack that a prompt went through."""
    seen = []

    class Watched(prefill.Forward):
        def run(self, kv_sink=None):
            seen.append(self.pack.rows)
            return super().run(kv_sink)

        def keys(self, kv_sink):
            seen.append(self.pack.rows)
            super().keys(kv_sink)

    monkeypatch.setattr(prefill, "Forward", Watched)
    return seen


def tokens(count, seed=0):
    return np.random.default_rng(seed).integers(0, 17, count).tolist()


def ask(engine, model, *prompts, **fields):
    fields = {"max_tokens": 5, "n": 2, **fields}
    return engine.sample(
        model, [SampleRequest(prompt=prompt, seed=i, **fields) for i, prompt in enumerate(prompts)]
    )


def bits(outputs):
    """Everything that an answer holds, to the last bit."""
    return [
        (
            [(sample.tokens, [float(x).hex() for x in sample.logprobs]) for sample in output.samples],
            None if output.prompt_logprobs is None else output.prompt_logprobs.tobytes(),
        )
        for output in outputs
    ]


# --- what is computed -----------------------------------------------------------------------------------------------


def test_the_next_turn_of_a_conversation_computes_only_what_follows(engine, rows):
    first = tokens(13)
    [answer] = ask(engine, engine.base, first)
    assert rows == [CHUNK, CHUNK, CHUNK, 1]
    rows.clear()
    second = first + answer.samples[0].tokens + tokens(4, 1)
    ask(engine, engine.base, second)
    assert len(second) == 22
    assert rows == [CHUNK, CHUNK, 2]  # 12 tokens came from the first turn


def test_the_samples_of_a_group_share_their_prompt_in_one_call_and_between_calls(engine, rows):
    ask(engine, engine.base, tokens(13), n=7)
    assert sum(rows) == 13
    rows.clear()
    for _ in range(3):
        ask(engine, engine.base, tokens(13), n=1)
    assert rows == [1, 1, 1]


def test_workers_that_want_the_same_beginning_compute_it_once(engine, rows):
    start = tokens(12)
    ask(engine, engine.base, *([*start, i] for i in range(6)))
    assert engine.workers == 2
    assert sum(rows) == 12 + 6


def test_a_prompt_whose_logprobs_are_wanted_is_computed_whole(engine, rows):
    ask(engine, engine.base, tokens(13))
    rows.clear()
    ask(engine, engine.base, tokens(13), prompt_logprobs=True)
    assert sum(rows) == 13


def test_a_prompt_of_a_whole_number_of_chunks_keeps_a_token_to_go_on_from(engine, rows):
    ask(engine, engine.base, tokens(3 * CHUNK))
    assert rows == [CHUNK, CHUNK, CHUNK]
    rows.clear()
    ask(engine, engine.base, tokens(3 * CHUNK))
    assert rows == [CHUNK]


def test_weights_that_are_being_trained_leave_nothing_behind(engine, rows, examples, curved_loss):
    model = engine.create_adapter(rank=2)
    before = ask(engine, model, tokens(13))
    assert engine.prefixes.nbytes == 0
    engine.forward_backward(model, examples, curved_loss)
    engine.optim_step(model, AdamParams(learning_rate=0.5))
    rows.clear()
    assert bits(ask(engine, model, tokens(13))) != bits(before)
    assert sum(rows) == 13


def test_another_snapshot_of_equal_weights_starts_anew(engine, rows):
    model = engine.create_adapter(rank=2)
    first, second = model.snapshot(), model.snapshot()
    ask(engine, first, tokens(13))
    rows.clear()
    ask(engine, second, tokens(13))
    assert sum(rows) == 13


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [CHUNK, CHUNK + 1, 3 * CHUNK, 15])
def test_greedy_decoding_after_kept_chunks_equals_the_full_forward_pass(
    make_engine, randomise, variant, length
):
    engine = cached(make_engine(block_rows=3, **variant))
    snapshot = randomise(engine.create_adapter(rank=3)).snapshot()
    prompt = tokens(length, length)
    for _ in range(2):
        [output] = ask(engine, snapshot, prompt, temperature=0, max_tokens=6, n=1)
        expected = list(prompt)
        for _ in range(6):
            scored = engine.compute_logprobs(snapshot, [[*expected, t] for t in range(17)])
            expected.append(int(np.argmax([own[-1] for own in scored])))
        assert output.samples[0].tokens == expected[length:]


def test_sampled_and_prompt_logprobs_are_the_trainers(make_engine, randomise, variant):
    engine = cached(make_engine(np.float32, block_rows=16, max_rows=24, **variant))
    snapshot = randomise(engine.create_adapter(rank=3)).snapshot()
    start = tokens(9)
    prompts = [start[: 3 + i] + tokens(3 * i, i) for i in range(6)]
    ask(engine, snapshot, *prompts)
    outputs = ask(engine, snapshot, *prompts, prompt_logprobs=True)
    for prompt, output in zip(prompts, outputs, strict=True):
        [own] = engine.compute_logprobs(snapshot, [prompt])
        np.testing.assert_allclose(output.prompt_logprobs, own, atol=2e-5)
        for sample in output.samples:
            [own] = engine.compute_logprobs(snapshot, [[*prompt, *sample.tokens]])
            ratio = np.exp(own[len(prompt) :] - np.asarray(sample.logprobs))
            assert np.abs(ratio - 1).max() < 1e-4


@pytest.fixture(scope="module", params=["panels", "plain"])
def engines(request):
    """One engine that keeps, one that keeps little, one that keeps nothing; with and without panels."""
    from evsys_backend_local.engine.shape import ModelShape
    from evsys_backend_local.engine.weights import BaseWeights

    shape = ModelShape(
        dim=48, layers=2, heads=4, kv_heads=2, head_dim=12, hidden=80, vocab=17, max_context=200
    )
    weights = BaseWeights.allocate(shape, np.float32)
    weights.params.flat[...] = np.random.default_rng(0).normal(0, 0.2, weights.params.flat.size)
    with pytest.MonkeyPatch.context() as patch:
        kernels = {blas_info()["kernel"]} if request.param == "panels" else ()
        patch.setattr(panels, "KERNELS", frozenset(kernels))
        made = [
            Engine(weights, workers=2, max_rows=64, prefixes=PrefixCache(limit, 8))
            for limit in (1 << 24, 10_000, 0)
        ]
        yield made
    for engine in made:
        engine.close()


turn = st.tuples(st.integers(0, 3), st.integers(1, 70), st.booleans(), st.integers(1, 3))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.lists(turn, min_size=1, max_size=4), min_size=1, max_size=4))
def test_answers_are_the_same_bits_whatever_was_kept(engines, calls):
    """Any calls, of prompts that begin alike or not: with a full, a small and no cache, and to an engine that saw none of them."""
    snapshots = [engine.create_adapter(rank=2, seed=1).snapshot() for engine in engines]
    for call in calls:
        requests = [
            SampleRequest(
                prompt=tokens(length, seed), n=n, max_tokens=4, seed=i, prompt_logprobs=scored, top_logprobs=2
            )
            for i, (seed, length, scored, n) in enumerate(call)
        ]
        kept, some, none = (
            bits(engine.sample(snapshot, requests))
            for engine, snapshot in zip(engines, snapshots, strict=True)
        )
        assert kept == some == none
        new = engines[0].create_adapter(rank=2, seed=1).snapshot()
        assert bits(engines[0].sample(new, requests)) == kept


# --- what is held ---------------------------------------------------------------------------------------------------


def key(name, prefix):
    return Key(name=name, threads=1, prefix=prefix)


class Held:
    """Stands for a snapshot."""


def block(value=0.0):
    return np.full(25, value, np.float32)  # 100 bytes


def test_digests_name_whole_chunks_before_the_last_token_by_all_that_is_before():
    sequence = np.arange(9)
    assert digests(sequence[:4], 4) == []
    assert len(digests(sequence[:5], 4)) == 1
    assert digests(sequence, 4)[:1] == digests(sequence[:5], 4)
    changed = sequence.copy()
    changed[0] = 7
    assert not set(digests(changed, 4)) & set(digests(sequence, 4))


def test_what_was_used_longest_ago_makes_room_and_the_end_of_a_path_before_its_beginning():
    cache = PrefixCache(limit=350)
    held = Held()
    assert cache.name(held) == cache.name(held) == 1
    path = [key(1, b"a"), key(1, b"b")]
    for one in path:
        cache.get(one, block)
    cache.get(key(1, b"c"), block)
    cache.touch(path)
    cache.get(key(1, b"d"), block)  # c goes
    cache.get(key(1, b"e"), block)  # then b, the end of the path
    assert cache.nbytes == 300
    missing = []
    for name in (b"a", b"d", b"e"):
        cache.get(key(1, name), lambda name=name: missing.append(name) or block())
    assert missing == []


def test_memory_is_bounded_and_what_is_larger_is_not_kept():
    cache = PrefixCache(limit=250)
    held = Held()
    cache.name(held)
    for number in range(20):
        cache.get(key(1, bytes([number])), block)
        assert cache.nbytes == min(number + 1, 2) * 100
    assert PrefixCache(limit=99).get(key(1, b"a"), block) is not None
    small = PrefixCache(limit=99)
    small.get(key(1, b"a"), block)
    assert small.nbytes == 0


def test_a_forgotten_snapshot_and_a_closed_engine_hold_nothing(engine):
    first, second = engine.create_adapter(rank=2).snapshot(), engine.create_adapter(rank=2).snapshot()
    ask(engine, first, tokens(13))
    own = engine.prefixes.nbytes
    ask(engine, second, tokens(13))
    assert engine.prefixes.nbytes == 2 * own > 0
    engine.forget(first)
    assert engine.prefixes.nbytes == own
    engine.forget(first)
    engine.close()
    assert engine.prefixes.nbytes == 0


def test_snapshots_that_nobody_holds_any_more_make_room_first(engine, rows):
    lost, held = engine.create_adapter(rank=2).snapshot(), engine.create_adapter(rank=2).snapshot()
    ask(engine, held, tokens(13))
    ask(engine, lost, tokens(13))
    engine.prefixes.limit = engine.prefixes.nbytes
    del lost
    gc.collect()
    ask(engine, held, tokens(13, 5))
    rows.clear()
    ask(engine, held, tokens(13))
    assert rows == [1]


def test_who_wants_what_another_thread_computes_waits_for_it_and_computes_it_itself_if_that_fails():
    cache = PrefixCache()
    started, go_on = threading.Event(), threading.Event()
    computed = []

    def failing():
        started.set()
        assert go_on.wait(20)
        raise ValueError("no chunk")

    failure = []

    def first():
        try:
            cache.get(key(1, b"a"), failing)
        except ValueError as error:
            failure.append(error)

    def second():
        assert started.wait(20)
        computed.append(cache.get(key(1, b"a"), block))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    assert started.wait(20)
    assert not computed
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(failure) == len(computed) == 1
    assert cache.get(key(1, b"a"), failing) is computed[0]
