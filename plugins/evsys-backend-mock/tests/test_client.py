"""The training client: learning, order of calls, saving, and clear errors."""

import asyncio

import attrs
import numpy as np
import pytest

from evsys.errors import AlgorithmError, BackendError, ConfigError
from evsys.types import AdamParams, Checkpoint, Datum
from evsys_backend_mock import MockBackend

ADAM = AdamParams(learning_rate=5e-3)


def batches(data, steps, size, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield [data[i] for i in rng.permutation(len(data))[:size]]


def scaled(batch):
    """Weights divided by the number of trained tokens, as an algorithm does it."""
    total = sum(d.loss_inputs["weights"].sum() for d in batch)
    return [
        Datum(tokens=d.tokens, loss_inputs={**d.loss_inputs, "weights": d.loss_inputs["weights"] / total})
        for d in batch
    ]


async def train(client, task, steps=60, adam=ADAM):
    losses = []
    for batch in batches(task.data(client.tokenizer), steps, 16):
        forward = client.forward_backward(scaled(batch), "cross_entropy")
        step = client.optim_step(adam)
        losses.append((await forward).loss)
        await step
    return losses


async def test_true_labels_generalise_to_new_wordings_and_shuffled_ones_do_not(prepare, make_task, accuracy):
    scores = {}
    for shuffled in (False, True):
        task, client = make_task(shuffled), await prepare()
        assert await accuracy(client, task.held_out) == 0.0
        losses = await train(client, task, steps=100)
        assert losses[-1] < 0.2 * losses[0]
        scores[shuffled] = await accuracy(client, task.held_out)
    assert scores[False] >= 0.9
    assert scores[True] <= 0.5


async def test_a_learning_rate_of_zero_changes_nothing(prepare, make_task):
    client, task = await prepare(), make_task()
    before = client._model
    await train(client, task, steps=3, adam=AdamParams(learning_rate=0.0))
    assert (client._model.A == before.A).all()
    assert (client._model.B == before.B).all()


async def weights(client):
    return client._model.A.tobytes() + client._model.B.tobytes()


async def test_same_seed_same_bits_and_another_seed_other_weights(prepare, make_task):
    found = []
    for seed in (0, 0, 1):
        client = await prepare(seed=seed)
        await train(client, make_task(), steps=5)
        found.append(await weights(client))
    assert found[0] == found[1] != found[2]


async def test_two_clients_at_once_share_no_state(prepare, make_task):
    alone = await prepare()
    await train(alone, make_task(), steps=4)
    one, two = await prepare(), await prepare()
    await asyncio.gather(train(one, make_task(), steps=4), train(two, make_task(shuffled=True), steps=4))
    assert await weights(one) == await weights(alone) != await weights(two)


async def test_gradients_add_up_until_the_optimiser_takes_them(prepare, make_task):
    task, whole, parts = make_task(), await prepare(), await prepare()
    data = scaled(task.data(whole.tokenizer)[:8])
    await whole.forward_backward(data, "cross_entropy")
    for half in (data[:4], data[4:]):
        await parts.forward_backward(half, "cross_entropy")
    first, second = await whole.optim_step(ADAM), await parts.optim_step(ADAM)
    assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-9)
    np.testing.assert_allclose(whole._model.B, parts._model.B, atol=1e-8)


async def test_the_gradient_norm_is_that_before_clipping_and_clipping_bounds_the_step(prepare, make_task):
    data = make_task().data((await prepare()).tokenizer)[:4]
    norms, second_moments = [], []
    for clip in (0.0, 1e-3):
        client = await prepare()
        await client.forward_backward(data, "cross_entropy")
        norms.append((await client.optim_step(AdamParams(learning_rate=1e-3, grad_clip=clip))).grad_norm)
        second_moments.append(sum(m.sum() for m in client._optimizer.second.values()))
    assert norms[0] == norms[1] > 1e-3
    assert second_moments[1] == pytest.approx(0.05 * 1e-6, rel=1e-6)


async def test_weight_decay_shrinks_the_weights_apart_from_the_gradient(prepare, make_task):
    client = await prepare()
    before = client._model.A.copy()
    data = scaled(make_task().data(client.tokenizer)[:1])
    await client.forward_backward(data, lambda data, logprobs: logprobs[0].sum() * 0.0)
    await client.optim_step(AdamParams(learning_rate=0.1, weight_decay=0.5))
    np.testing.assert_allclose(client._model.A, before * 0.95)


async def test_a_named_loss_and_the_same_loss_as_a_callable_leave_the_same_weights(prepare, make_task):
    def nll(data, logprobs):
        return sum(-np.sum(d.loss_inputs["weights"] * lp) for d, lp in zip(data, logprobs, strict=True))

    clients = [await prepare(), await prepare()]
    for client, loss in zip(clients, ("cross_entropy", nll), strict=True):
        for batch in batches(make_task().data(client.tokenizer), 3, 8):
            await client.forward_backward(scaled(batch), loss)
            await client.optim_step(ADAM)
    np.testing.assert_allclose(clients[0]._model.A, clients[1]._model.A, atol=1e-12)
    np.testing.assert_allclose(clients[0]._model.B, clients[1]._model.B, atol=1e-12)


async def test_data_with_one_and_with_several_targets_may_be_mixed(prepare):
    client = await prepare()
    plain = Datum(
        tokens=np.array([1, 2]), loss_inputs={"target_tokens": np.array([2, 3]), "weights": np.ones(2)}
    )
    top_k = Datum(
        tokens=np.array([1, 2, 3]),
        loss_inputs={"target_tokens": np.arange(9).reshape(3, 3), "weights": np.full((3, 3), 1 / 3)},
    )
    both = await client.forward_backward([plain, top_k], "cross_entropy")
    assert [array.shape for array in both.logprobs] == [(2,), (3, 3)]
    alone = [await client.forward([datum]) for datum in (plain, top_k)]
    for together, apart in zip(both.logprobs, alone, strict=True):
        np.testing.assert_array_equal(together, apart.logprobs[0])
    assert both.tokens == 5


async def saved(client, directory):
    directory.mkdir()
    state = await client.save_state(directory)
    return Checkpoint(step=client._version, directory=directory, state=state)


async def test_a_restored_client_goes_on_bit_for_bit(prepare, make_task, tmp_path):
    task = make_task()
    straight = await prepare(seed=3)
    await train(straight, task, steps=8)
    half = await prepare(seed=3)
    data = list(batches(task.data(half.tokenizer), 8, 16))
    for batch in data[:4]:
        await half.forward_backward(scaled(batch), "cross_entropy")
        await half.optim_step(ADAM)
    resumed = await prepare(seed=99, restore=await saved(half, tmp_path / "4"))
    for batch in data[4:]:
        await resumed.forward_backward(scaled(batch), "cross_entropy")
        await resumed.optim_step(ADAM)
    assert await weights(resumed) == await weights(straight)
    assert (await resumed.sampling_client()).version == 8


async def test_saving_twice_writes_the_same_bytes(prepare, make_task, tmp_path):
    client = await prepare()
    await train(client, make_task(), steps=2)
    first, second = [await saved(client, tmp_path / name) for name in ("a", "b")]
    assert (first.directory / "mock.npz").read_bytes() == (second.directory / "mock.npz").read_bytes()


async def test_another_run_may_start_from_the_weights_with_or_without_the_optimiser(
    prepare, make_task, tmp_path
):
    source = await prepare()
    await train(source, make_task(), steps=3)
    checkpoint = await saved(source, tmp_path / "3")
    only_weights = await prepare(init_from_checkpoint=str(checkpoint.directory))
    with_optimizer = await prepare(load_checkpoint_path=str(checkpoint.directory))
    assert await weights(only_weights) == await weights(with_optimizer) == await weights(source)
    assert (only_weights._optimizer.step, with_optimizer._optimizer.step) == (0, 3)
    assert only_weights._version == with_optimizer._version == 0


@pytest.mark.parametrize(
    ("step", "with_optimizer"),
    [(0, True), (0, False), (5, True)],
    ids=["another run's state", "another run's weights", "this run's step"],
)
async def test_the_version_counts_the_steps_of_this_run(prepare, make_task, tmp_path, step, with_optimizer):
    source = await prepare()
    await train(source, make_task(), steps=3)
    checkpoint = await saved(source, tmp_path / "3")
    restore = Checkpoint(
        step=step, directory=checkpoint.directory, state=checkpoint.state, with_optimizer=with_optimizer
    )
    client = await prepare(restore=restore)
    assert (await client.sampling_client()).version == step
    await train(client, make_task(), steps=1)
    assert (await client.sampling_client()).version == step + 1


async def test_a_checkpoint_that_does_not_fit_is_refused(prepare, tmp_path):
    checkpoint = await saved(await prepare(rank=4), tmp_path / "0")
    with pytest.raises(BackendError, match=r"rank of 4, this model has 8.*lora_rank"):
        await prepare(rank=8, restore=checkpoint)
    with pytest.raises(BackendError, match="no checkpoint of the mock backend"):
        await prepare(init_from_checkpoint=str(tmp_path))
    (checkpoint.directory / "mock.npz").write_bytes(b"half a file")
    with pytest.raises(BackendError, match="can't be read"):
        await prepare(rank=4, restore=checkpoint)


async def test_training_all_weights_is_refused_before_and_while_preparing(prepare, spec):
    with pytest.raises(ConfigError, match="lora_rank"):
        await prepare(rank=None)
    (problem,) = MockBackend.validate_model(spec(rank=None))
    assert problem.path == "$.algorithm.params.lora_rank"
    assert not MockBackend.validate_model(spec())


@pytest.mark.parametrize(
    ("datum", "message"),
    [
        (
            Datum(tokens=np.array([1, 300]), loss_inputs={"target_tokens": np.array([1, 2])}),
            "token 300 .* 259",
        ),
        (Datum(tokens=np.array([1, 2]), loss_inputs={"target_tokens": np.array([1, -1])}), "target token -1"),
        (Datum(tokens=np.array([1, 2]), loss_inputs={}), "no target_tokens"),
        (Datum(tokens=np.array([1.0]), loss_inputs={"target_tokens": np.array([1])}), "integers"),
        (Datum(tokens=np.array([], int), loss_inputs={"target_tokens": np.array([], int)}), "no tokens"),
    ],
)
async def test_a_datum_that_can_not_be_trained_is_named(prepare, datum, message):
    client = await prepare()
    good = Datum(tokens=np.array([1]), loss_inputs={"target_tokens": np.array([2])})
    with pytest.raises(BackendError, match=f"datum 1.*{message}"):
        await client.forward([good, datum])
    with pytest.raises(BackendError, match="no data"):
        await client.forward([])


async def test_a_failed_call_raises_where_it_is_awaited_and_leaves_no_gradient(prepare):
    client = await prepare()
    datum = Datum(tokens=np.array([1]), loss_inputs={"target_tokens": np.array([2])})
    forward = client.forward_backward([datum], "cross_entropy")  # has no weights
    step = client.optim_step(ADAM)
    with pytest.raises(AlgorithmError, match="weights"):
        await forward
    with pytest.raises(BackendError, match="without a gradient"):
        await step


async def test_after_teardown_the_client_refuses_and_teardown_may_come_twice_or_after_a_failure(prepare):
    client, backend = await prepare(), MockBackend()
    for _ in range(2):
        await backend.teardown(client)
    await backend.teardown(None)
    with pytest.raises(BackendError, match="closed"):
        await client.forward([])
    with pytest.raises(BackendError, match="closed"):
        await client.sampling_client()


TURN = "<end-of-turn> <assistant> <says>"  # like a chat template's


class Words:
    """A tokenizer with a large vocabulary: one token a word."""

    vocab_size = 50_000
    eos_token_ids = (1,)

    def __init__(self):
        self._ids, self._words = {"<end>": 1}, {1: "<end>"}

    def encode(self, text):
        for word in text.split():
            self._ids.setdefault(word, 40_000 - 7 * len(self._ids))
            self._words[self._ids[word]] = word
        return [self._ids[word] for word in text.split()]

    def decode(self, tokens):
        return " ".join(self._words.get(int(token), "?") for token in tokens)


async def test_the_running_mean_is_that_of_the_weights_at_each_call(prepare, make_task, tmp_path):
    client, task = await prepare(), make_task()
    await client.averaged_sampling_client(0.5)
    A, B = client._model.A.copy(), client._model.B.copy()
    for rate in (0.5, 0.01):
        await train(client, task, steps=2)
        A += rate * (client._model.A - A)
        B += rate * (client._model.B - B)
        sampler = await client.averaged_sampling_client(rate)
    np.testing.assert_allclose(sampler._model.A, A, atol=1e-15)
    np.testing.assert_allclose(sampler._model.B, B, atol=1e-15)
    checkpoint = await saved(client, tmp_path / "4")
    again = await prepare(restore=checkpoint)
    assert (await again.averaged_sampling_client(0.0))._model.B.tobytes() == sampler._model.B.tobytes()
    weights_alone = await prepare(restore=attrs.evolve(checkpoint, with_optimizer=False))
    alone = await weights_alone.averaged_sampling_client(0.3)
    assert alone._model.B.tobytes() == client._model.B.tobytes()


async def test_a_large_vocabulary_is_learned_saved_and_sampled(tmp_path, make_task):
    from evsys.types import SamplingParams
    from evsys_backend_mock.client import MockTrainingClient
    from evsys_backend_mock.model import LowRankModel
    from evsys_backend_mock.state import Saved, read_state
    from evsys_backend_mock.vocabulary import Vocabulary

    words = Words()
    fresh = LowRankModel.create(Vocabulary.create("m", size=50_000, end_ids=(1,)), rank=8, alpha=32.0, seed=0)
    client = MockTrainingClient(
        Saved.beginning(fresh),
        tokenizer=words,
        renderer=None,
        seed=0,
        capabilities=MockBackend.capabilities,
    )
    task = make_task()
    data = []
    for question, answer in task.train:
        tokens = np.array(words.encode(f"{question} {TURN} {answer} <end>"))
        weights = np.zeros(len(tokens) - 1)
        weights[-2:] = 1.0
        data.append(Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": weights}))
    await client.averaged_sampling_client(0.1)  # before any of the answers' tokens has a column
    for batch in batches(data, 60, 12):
        forward = client.forward_backward(scaled(batch), "cross_entropy")
        await client.optim_step(ADAM)
        result = await forward
    assert result.loss < 0.5
    assert client._model.B.shape == (8, 1 + 1 + 4)  # shared, the end token, four answers
    assert client._average.B.shape == client._model.B.shape
    sampler = await client.sampling_client()
    right = 0
    for question, answer in task.held_out:
        prompt = words.encode(f"{question} {TURN}")
        drawn = await sampler.sample(prompt, SamplingParams(max_tokens=3, temperature=0.0))
        right += words.decode(drawn.sequences[0].tokens) == f"{answer} <end>"
        again = await sampler.compute_logprobs([*prompt, *drawn.sequences[0].tokens])
        np.testing.assert_array_equal(np.float32(drawn.sequences[0].logprobs), again[len(prompt) :])
    assert right >= 0.9 * len(task.held_out)
    checkpoint = await saved(client, tmp_path / "60")
    restored = read_state(checkpoint.directory / "mock.npz", fresh)
    assert restored.model.B.tobytes() == client._model.B.tobytes()
    assert restored.model.vocabulary.own.tolist() == client._model.vocabulary.own.tolist()


async def test_the_tokenizer_of_a_model_that_is_not_here_is_bytes(prepare):
    client = await prepare(name="somebody/huge-model")
    assert client.tokenizer.vocab_size == 259
    assert client.renderer.render_prompt is not None
