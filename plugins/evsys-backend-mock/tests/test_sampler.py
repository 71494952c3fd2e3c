"""Sampling: frozen snapshots, honest logprobs, streams of their own."""

import asyncio

import numpy as np
import pytest

from evsys.errors import BackendError
from evsys.types import AdamParams, Datum, SamplingParams

STEPS = 12
PROMPT = list(b"the prompt of a test ")


async def trained(prepare, **fields):
    """A client whose model has a mind of its own, and is sure of it when trained for long."""
    steps = fields.pop("steps", STEPS)
    client = await prepare(**fields)
    sequence = np.frombuffer(b"the prompt of a test abcabcabcabc", np.uint8).astype(np.int64)
    datum = Datum(
        tokens=sequence[:-1], loss_inputs={"target_tokens": sequence[1:], "weights": np.full(32, 0.03)}
    )
    for _ in range(steps):
        await client.forward_backward([datum], "cross_entropy")
        await client.optim_step(AdamParams(learning_rate=6e-4))
    return client


async def test_sampled_logprobs_equal_recomputed_ones_at_any_temperature(prepare):
    client = await trained(prepare)
    sampler = await client.sampling_client()
    for temperature in (0.0, 0.7, 1.0, 1.5):
        params = SamplingParams(max_tokens=12, temperature=temperature, seed=4)
        for sequence in (await sampler.sample(PROMPT, params, n=3)).sequences:
            whole = [*PROMPT, *sequence.tokens]
            again = await sampler.compute_logprobs(whole)
            np.testing.assert_array_equal(np.float32(sequence.logprobs), again[len(PROMPT) :])
            datum = Datum(tokens=np.array(whole[:-1]), loss_inputs={"target_tokens": np.array(whole[1:])})
            trainer = (await client.forward([datum])).logprobs[0][len(PROMPT) - 1 :]
            np.testing.assert_array_equal(sequence.logprobs, trainer)


async def test_a_snapshot_is_frozen_and_knows_its_version(prepare):
    client = await trained(prepare)
    snapshot = await client.sampling_client()
    before = await snapshot.compute_logprobs(PROMPT)
    datum = Datum(
        tokens=np.array(PROMPT[:-1]),
        loss_inputs={"target_tokens": np.array(PROMPT[1:]), "weights": np.ones(20)},
    )
    await client.forward_backward([datum], "cross_entropy")
    await client.optim_step(AdamParams(learning_rate=0.1))
    np.testing.assert_array_equal(await snapshot.compute_logprobs(PROMPT), before)
    later = await client.sampling_client()
    assert (snapshot.version, later.version) == (STEPS, STEPS + 1)
    assert (await later.compute_logprobs(PROMPT))[5] != before[5]


async def test_each_sample_has_a_stream_of_its_own_that_its_seed_and_index_name(prepare):
    sampler = await (await trained(prepare)).sampling_client()

    async def draw(seed, n):
        result = await sampler.sample(PROMPT, SamplingParams(max_tokens=8, seed=seed), n)
        return [tuple(sequence.tokens) for sequence in result.sequences]

    four, again, two, other = await draw(1, 4), await draw(1, 4), await draw(1, 2), await draw(2, 4)
    assert four == again
    assert four[:2] == two
    assert len(set(four)) > 1
    assert four != other


async def test_no_bit_depends_on_what_else_is_sampled_at_the_same_time(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    prompts = [PROMPT[: 3 + i] for i in range(17)] * 10
    params = [
        SamplingParams(max_tokens=1 + i % 9, seed=i, temperature=0.5 + i / 50) for i in range(len(prompts))
    ]
    alone = [await sampler.sample(p, q, 2) for p, q in zip(prompts, params, strict=True)]
    together = await asyncio.gather(*(sampler.sample(p, q, 2) for p, q in zip(prompts, params, strict=True)))
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one.sequences, other.sequences, strict=True):
            assert (a.tokens, a.logprobs, a.finish_reason) == (b.tokens, b.logprobs, b.finish_reason)


async def test_calls_without_a_seed_differ_from_each_other_and_repeat_with_the_run(prepare):
    draws = []
    for _ in range(2):
        sampler = await (await trained(prepare)).sampling_client()
        results = [await sampler.sample(PROMPT, SamplingParams(max_tokens=10)) for _ in range(3)]
        draws.append([tuple(result.sequences[0].tokens) for result in results])
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 1


async def test_tokens_are_drawn_with_the_probabilities_of_the_model(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    n = 4000
    result = await sampler.sample(PROMPT, SamplingParams(max_tokens=1, seed=11, top_logprobs=259), n)
    expected = np.zeros(259)
    for token, logprob in result.sequences[0].top_logprobs[0].items():
        expected[token] = np.exp(logprob) * n
    counts = np.bincount([sequence.tokens[0] for sequence in result.sequences], minlength=259)
    common = expected >= 5
    chi2 = np.sum((counts[common] - expected[common]) ** 2 / expected[common])
    degrees = common.sum()
    assert chi2 < degrees + 5 * np.sqrt(2 * degrees)


async def test_top_k_and_top_p_leave_only_the_likeliest(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    best = next(
        iter(
            (await sampler.sample(PROMPT, SamplingParams(max_tokens=1, top_logprobs=1)))
            .sequences[0]
            .top_logprobs[0]
        )
    )
    for params in (
        SamplingParams(max_tokens=1, top_k=1, seed=0),
        SamplingParams(max_tokens=1, top_p=1e-6, seed=0),
        SamplingParams(max_tokens=1, temperature=0.0),
    ):
        tokens = {sequence.tokens[0] for sequence in (await sampler.sample(PROMPT, params, 20)).sequences}
        assert tokens == {best}
    two = await sampler.sample(PROMPT, SamplingParams(max_tokens=1, top_k=2, seed=0), 60)
    assert len({sequence.tokens[0] for sequence in two.sequences}) == 2


async def test_prompt_logprobs_start_with_none_and_equal_compute_logprobs(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    result = await sampler.sample(PROMPT, SamplingParams(max_tokens=1, prompt_logprobs=True))
    assert result.prompt_logprobs[0] is None
    recomputed = await sampler.compute_logprobs(PROMPT)
    assert np.isnan(recomputed[0])
    assert recomputed.dtype == np.float32
    np.testing.assert_array_equal(np.float32(result.prompt_logprobs[1:]), recomputed[1:])
    assert (await sampler.sample(PROMPT, SamplingParams(max_tokens=1))).prompt_logprobs is None
    alone = await sampler.sample(PROMPT[:1], SamplingParams(max_tokens=1, prompt_logprobs=True))
    assert alone.prompt_logprobs == [None]


async def test_the_likeliest_tokens_of_a_prompts_positions_are_those_of_the_distribution(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    wanted = SamplingParams(max_tokens=1, prompt_logprobs=True, top_prompt_logprobs=259)
    result = await sampler.sample(PROMPT, wanted)
    first, *rest = result.top_prompt_logprobs
    assert first is None
    assert len(rest) == len(PROMPT) - 1
    for token, own, row in zip(PROMPT[1:], result.prompt_logprobs[1:], rest, strict=True):
        assert len(row) == 259
        assert row[token] == own
        assert sum(np.exp(list(row.values()))) == pytest.approx(1.0, abs=1e-5)
        assert list(row.values()) == sorted(row.values(), reverse=True)
    two = (
        await sampler.sample(PROMPT, SamplingParams(max_tokens=1, top_prompt_logprobs=2))
    ).top_prompt_logprobs
    assert [list(row) for row in two[1:]] == [list(row)[:2] for row in rest]


async def test_sampling_ends_at_end_tokens_stop_texts_and_the_limit(prepare):
    client = await trained(prepare, steps=3 * STEPS)
    sampler = await client.sampling_client()
    greedy = (await sampler.sample(PROMPT, SamplingParams(max_tokens=9, temperature=0.0))).sequences[0]
    assert bytes(greedy.tokens) == b"abcabcabc"
    assert greedy.finish_reason == "length"
    text = await sampler.sample(PROMPT, SamplingParams(max_tokens=9, temperature=0.0, stop=("bca",)))
    assert bytes(text.sequences[0].tokens) == b"abca"
    assert text.sequences[0].finish_reason == "stop"
    token = await sampler.sample(
        PROMPT, SamplingParams(max_tokens=9, temperature=0.0, stop_token_ids=(ord("c"),))
    )
    assert bytes(token.sequences[0].tokens) == b"abc"
    fresh = await (await prepare()).sampling_client()
    ended = (await fresh.sample(PROMPT, SamplingParams(max_tokens=9, temperature=0.0))).sequences[0]
    assert ended.finish_reason == "stop"
    assert ended.tokens[-1] in client.tokenizer.eos_token_ids


async def test_whoever_stops_waiting_does_not_disturb_the_others(prepare):
    sampler = await (await trained(prepare)).sampling_client()
    tasks = [
        asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=5, seed=i))) for i in range(4)
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert all(len(results[i].sequences[0].tokens) for i in (0, 2, 3))


@pytest.mark.parametrize(
    ("prompt", "params", "n", "message"),
    [
        ([], SamplingParams(), 1, "no tokens"),
        ([1, 400], SamplingParams(), 1, "outside the vocabulary"),
        ([1], SamplingParams(max_tokens=0), 1, "max_tokens"),
        ([1], SamplingParams(), 0, "at least 1"),
    ],
)
async def test_unusable_calls_are_refused(prepare, prompt, params, n, message):
    sampler = await (await prepare()).sampling_client()
    with pytest.raises(BackendError, match=message):
        await sampler.sample(prompt, params, n)


async def test_a_closed_sampler_refuses_and_may_be_closed_twice(prepare):
    sampler = await (await prepare()).sampling_client()
    await sampler.close()
    await sampler.close()
    with pytest.raises(BackendError, match="closed"):
        await sampler.sample([1], SamplingParams())


async def test_snapshots_have_equal_digests_exactly_where_their_weights_are_equal(prepare):
    client = await trained(prepare, steps=1)
    first, again = await client.sampling_client(), await client.sampling_client()
    other = await (await trained(prepare, steps=2)).sampling_client()
    same = await (await trained(prepare, steps=1)).sampling_client()
    assert first.digest == again.digest == same.digest
    assert first.digest != other.digest


@pytest.mark.parametrize("call", ["sample", "compute_logprobs", "forward"])
async def test_a_sequence_beyond_the_context_is_refused_before_it_is_read(prepare, call):
    client = await prepare()
    sampler = await client.sampling_client()
    tokens = np.zeros(1_000_000, np.int64)
    with pytest.raises(BackendError, match="has 1000000 tokens, but the mock's context is 131072") as refused:
        if call == "sample":
            await sampler.sample(tokens, SamplingParams(max_tokens=1))
        elif call == "compute_logprobs":
            await sampler.compute_logprobs(tokens)
        else:
            await client.forward([Datum(tokens=tokens, loss_inputs={"target_tokens": tokens})])
    assert refused.value.facts["limit"] == 131_072
