import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_backend_local.engine.decode import split_by_memory
from evsys_backend_local.engine.draw import draw, log_normaliser
from evsys_backend_local.engine.limits import InvalidInputError
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.workspace import Workspace


@pytest.fixture
def engine(make_engine):
    return make_engine(np.float32, block_rows=16, max_rows=128)


def greedy_by_full_forward(engine, model, prompt, count):
    """The likeliest token again and again, each found by scoring all continuations from the start."""
    tokens = list(prompt)
    for _ in range(count):
        scored = engine.compute_logprobs(model, [[*tokens, t] for t in range(engine.shape.vocab)])
        tokens.append(int(np.argmax([own[-1] for own in scored])))
    return tokens[len(prompt) :]


def ragged_requests(count=6, n=4):
    rng = np.random.default_rng(4)
    start = rng.integers(0, 17, 5).tolist()
    return [
        SampleRequest(
            prompt=start[: 2 + i % 3] + rng.integers(0, 17, i).tolist(),
            n=n - i % 2,
            max_tokens=3 + 4 * i,
            seed=10 + i,
            stop_tokens=frozenset([2, 3]),
            prompt_logprobs=True,
        )
        for i in range(count)
    ]


def worst_ratio(engine, model, requests, outputs):
    sequences, sampled = [], []
    for request, output in zip(requests, outputs, strict=True):
        for sample in output.samples:
            sequences.append([*request.prompt, *sample.tokens])
            sampled.append(np.asarray(sample.logprobs))
    scored = engine.compute_logprobs(model, sequences)
    return max(
        float(np.abs(np.exp(own[-len(lp) :] - lp) - 1).max()) for own, lp in zip(scored, sampled, strict=True)
    )


def test_sampled_logprobs_are_the_trainers(engine, randomise, variant, make_engine):
    engine = make_engine(np.float32, block_rows=16, max_rows=128, **variant)
    model = randomise(engine.create_adapter(rank=3))
    requests = ragged_requests()
    outputs = engine.sample(model, requests)
    assert {s.finish_reason for o in outputs for s in o.samples} == {"stop", "length"}
    assert worst_ratio(engine, model, requests, outputs) < 1e-4


def test_sampled_logprobs_are_the_trainers_when_workers_share_the_requests(engine, randomise):
    model = randomise(engine.create_adapter(rank=3))
    requests = ragged_requests(count=9, n=13)
    assert sum(r.n for r in requests) >= 96
    outputs = engine.sample(model, requests)
    assert [len(o.samples) for o in outputs] == [r.n for r in requests]
    assert worst_ratio(engine, model, requests, outputs) < 1e-4


def test_prompt_logprobs_are_the_trainers(engine):
    requests = ragged_requests()
    for request, output in zip(requests, engine.sample(engine.base, requests), strict=True):
        expected = engine.compute_logprobs(engine.base, [request.prompt])[0]
        np.testing.assert_allclose(output.prompt_logprobs, expected, atol=1e-5)


@pytest.mark.parametrize("length", [1, 9])
def test_greedy_decoding_equals_the_full_forward_pass(make_engine, randomise, length):
    engine = make_engine(block_rows=16)
    model = randomise(engine.create_adapter(rank=3))
    prompt = np.random.default_rng(length).integers(0, 17, length).tolist()
    output = engine.sample(model, [SampleRequest(prompt=prompt, temperature=0, max_tokens=20)])[0]
    assert output.samples[0].tokens == greedy_by_full_forward(engine, model, prompt, 20)


def test_one_request_gives_the_same_sample_alone_and_in_a_batch(make_engine):
    engine = make_engine()
    requests = ragged_requests()
    together = engine.sample(engine.base, requests)
    for request, output in zip(requests, together, strict=True):
        alone = engine.sample(engine.base, [request])[0]
        assert [s.tokens for s in alone.samples] == [s.tokens for s in output.samples]


def test_samples_are_named_by_seed_and_index(engine):
    whole = engine.sample(engine.base, [SampleRequest(prompt=[1, 2], n=6, seed=3, max_tokens=8)])[0]
    part = engine.sample(
        engine.base, [SampleRequest(prompt=[1, 2], n=2, first_index=4, seed=3, max_tokens=8)]
    )[0]
    other = engine.sample(engine.base, [SampleRequest(prompt=[1, 2], n=6, seed=4, max_tokens=8)])[0]
    tokens = [tuple(s.tokens) for s in whole.samples]
    assert tokens[4:] == [tuple(s.tokens) for s in part.samples]
    assert len(set(tokens)) > 1
    assert tokens != [tuple(s.tokens) for s in other.samples]


def test_draw_walks_blocks_of_a_large_vocabulary():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (1, 1000)).astype(np.float32)
    weights = log_normaliser(logits, Workspace(np.float32))[1]
    edges = np.cumsum(np.exp(logits[0] - logits.max()), dtype=np.float64)
    uniform = rng.random(500)
    chosen = draw(np.repeat(weights, 500, axis=0), uniform)
    np.testing.assert_array_equal(chosen, np.searchsorted(edges, uniform * edges[-1], side="right"))


def test_draw_never_picks_a_token_without_mass():
    weights = np.zeros((3, 512), np.float32)
    weights[:, 300] = 1e-30
    chosen = draw(weights, np.array([0.0, 0.5, np.nextafter(1, 0)]))
    assert chosen.tolist() == [300, 300, 300]


def test_stop_token_and_callback_end_a_sample_and_are_kept(engine):
    free = engine.sample(engine.base, [SampleRequest(prompt=[1], max_tokens=12, seed=2)])[0].samples[0].tokens
    for stop in (
        {"stop_tokens": frozenset([free[4]])},
        {"should_stop": lambda tokens: list(tokens[-2:]) == free[3:5]},
    ):
        sample = engine.sample(engine.base, [SampleRequest(prompt=[1], max_tokens=12, seed=2, **stop)])[
            0
        ].samples[0]
        assert sample.finish_reason == "stop"
        assert sample.tokens == free[: len(sample.tokens)]
        assert len(sample.tokens) <= 5


def test_the_likeliest_tokens_of_given_ones_are_those_of_the_distribution(engine):
    model = engine.create_adapter(rank=2, seed=3)
    prompt = np.random.default_rng(1).integers(0, engine.shape.vocab, 40).tolist()
    rows = engine.likeliest(model, prompt, engine.shape.vocab)
    scored = engine.compute_logprobs(model, [prompt])[0][1:]
    assert len(rows) == len(prompt) - 1
    for token, own, row in zip(prompt[1:], scored, rows, strict=True):
        assert len(row) == engine.shape.vocab
        assert row[token] == pytest.approx(float(own), abs=1e-5)
        assert sum(np.exp(list(row.values()))) == pytest.approx(1.0, abs=1e-5)
        assert list(row.values()) == sorted(row.values(), reverse=True)
    three = engine.likeliest(model, prompt, 3)
    assert [list(row) for row in three] == [list(row)[:3] for row in rows]
    assert engine.likeliest(model, prompt[:1], 3) == []


def test_top_logprobs_are_the_likeliest_first(engine):
    sample = engine.sample(
        engine.base, [SampleRequest(prompt=[1, 2], max_tokens=3, temperature=0, top_logprobs=5)]
    )[0].samples[0]
    assert sample.top_logprobs is not None
    for token, logprob, top in zip(sample.tokens, sample.logprobs, sample.top_logprobs, strict=True):
        assert len(top) == 5
        assert next(iter(top)) == token
        assert top[token] == pytest.approx(logprob, abs=1e-5)
        assert list(top.values()) == sorted(top.values(), reverse=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": [1] * 60, "max_tokens": 5}, "60 tokens and 5 new ones exceed the model's context of 64"),
        ({"prompt": [1] * 64, "max_tokens": None}, "exceed the model's context"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": [17]}, "outside 0..16"),
        ({"prompt": [1], "temperature": -1}, "temperature >= 0"),
        ({"prompt": [1], "top_p": 0}, "top_p"),
        ({"prompt": [1], "n": 0}, "at least 1"),
        ({"prompt": [1.5]}, "must be integers"),
        ({"prompt": [1], "seed": -1}, "seed must be at least 0"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(engine, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        engine.sample(engine.base, [SampleRequest(**settings)])


def test_no_limit_fills_the_context(engine):
    sample = engine.sample(engine.base, [SampleRequest(prompt=[1] * 50, max_tokens=None)])[0].samples[0]
    assert len(sample.tokens) == 14


def test_who_fills_the_context_beside_a_longer_answer_stops_there(make_engine, variant):
    engine = make_engine(workers=1, **variant)
    requests = [
        SampleRequest(prompt=[1] * 60, max_tokens=4, seed=1),
        SampleRequest(prompt=[2, 3], n=8, max_tokens=62, seed=2),
    ]
    together = engine.sample(engine.base, requests)
    alone = [engine.sample(engine.base, [request])[0] for request in requests]
    assert [s.tokens for o in together for s in o.samples] == [s.tokens for o in alone for s in o.samples]
    assert worst_ratio(engine, engine.base, requests, together) < 1e-6


def test_broken_weights_are_an_error_not_a_sample(engine):
    engine.weights.final_norm[0] = np.nan
    with pytest.raises(FloatingPointError, match="NaN"):
        engine.sample(engine.base, [SampleRequest(prompt=[1], max_tokens=2)])


def test_a_snapshot_stays_while_training_goes_on(engine, randomise, examples, curved_loss):
    from evsys_backend_local.engine.adam import AdamParams

    model = randomise(engine.create_adapter(rank=3))
    snapshot = model.snapshot()
    requests = ragged_requests()
    before = engine.sample(snapshot, requests)
    engine.forward_backward(model, examples, curved_loss)
    engine.optim_step(model, AdamParams(learning_rate=0.1))
    after = engine.sample(snapshot, requests)
    assert [s.logprobs for o in before for s in o.samples] == [s.logprobs for o in after for s in o.samples]
    assert snapshot.digest != model.snapshot().digest
    assert (snapshot.version, model.version) == (0, 1)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=12),
    st.integers(1, 300),
)
def test_a_wave_holds_what_fits_with_its_prompts_padded(lengths, most):
    prompts, answers = [prompt for prompt, _ in lengths], [answer for _, answer in lengths]
    waves = split_by_memory(prompts, answers, most)
    assert sorted(index for wave in waves for index in wave) == list(range(len(lengths)))
    for wave in waves:
        assert wave == sorted(wave)
        padded = len(wave) * max(prompts[index] for index in wave) + sum(answers[index] for index in wave)
        assert padded <= most or len(wave) == 1
    assert len(waves) <= 1 or len(prompts) * max(prompts) + sum(answers) > most


def test_one_long_prompt_among_short_ones_is_not_padding_for_all():
    assert split_by_memory([3000, *[20] * 40], [8] * 41, 5800) == [list(range(1, 41)), [0]]


def test_waves_that_exceed_the_memory_for_keys_give_the_same_samples(make_engine, monkeypatch):
    engine = make_engine()
    requests = ragged_requests()
    whole = engine.sample(engine.base, requests)
    monkeypatch.setattr("evsys_backend_local.engine.sampler.KV_BYTES", 1)
    apart = engine.sample(engine.base, requests)
    assert [s.tokens for o in whole for s in o.samples] == [s.tokens for o in apart for s in o.samples]
