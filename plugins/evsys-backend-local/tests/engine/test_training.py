import threading

import numpy as np
import pytest

from evsys_backend_local.engine.adam import Adam, AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.sampler import SampleRequest


def total(indices, logprobs):
    return -sum(float(own.sum()) for own in logprobs), [-np.ones_like(own) for own in logprobs], {}


def run_training(make_engine, workers, steps=4):
    """A few steps of training and sampling; returns every bit that came out."""
    engine = make_engine(np.float32, workers=workers, max_rows=16)
    model = engine.create_adapter(rank=3, seed=7)
    rng = np.random.default_rng(0)
    trace = []
    for _ in range(steps):
        data = [
            Example(tokens=rng.integers(0, 17, n), targets=rng.integers(0, 17, n))
            for n in rng.integers(2, 14, 9)
        ]
        result = engine.forward_backward(model, data, total)
        norm = engine.optim_step(model, AdamParams(learning_rate=0.05))
        samples = engine.sample(model.snapshot(), [SampleRequest(prompt=[1, 2], n=5, max_tokens=6, seed=3)])
        trace.append((result.value, norm, [s.logprobs for o in samples for s in o.samples]))
    return model.params.flat.copy(), trace


@pytest.mark.parametrize("workers", [1, 2])
def test_same_seed_twice_gives_the_same_bits(make_engine, workers):
    first, second = (run_training(make_engine, workers) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_another_worker_count_differs_by_rounding_only(make_engine):
    one, two = (run_training(make_engine, workers)[0] for workers in (1, 2))
    np.testing.assert_allclose(one, two, atol=2e-4)


def test_training_lowers_the_loss(make_engine):
    engine = make_engine(np.float32)
    model = engine.create_full()
    data = [Example(tokens=[1, 2, 3, 4], targets=[2, 3, 4, 5])]
    values = []
    for _ in range(60):
        values.append(engine.forward_backward(model, data, total).value)
        engine.optim_step(model, AdamParams(learning_rate=0.02))
    assert values[-1] < 0.1 * values[0]


def test_full_fine_tuning_leaves_the_shared_base_alone(make_engine):
    engine = make_engine(np.float32)
    before = engine.weights.params.flat.copy()
    model = engine.create_full()
    engine.forward_backward(model, [Example(tokens=[1, 2], targets=[2, 3])], total)
    engine.optim_step(model, AdamParams(learning_rate=0.1))
    np.testing.assert_array_equal(engine.weights.params.flat, before)
    assert not np.array_equal(model.params.flat, before)


def test_two_adapters_over_one_base_do_not_touch_each_other(make_engine):
    engine = make_engine(np.float32)
    first, second = engine.create_adapter(rank=2, seed=1), engine.create_adapter(rank=3, seed=2)
    kept = second.params.flat.copy()
    engine.forward_backward(first, [Example(tokens=[1, 2], targets=[2, 3])], total)
    engine.optim_step(first, AdamParams(learning_rate=0.1))
    np.testing.assert_array_equal(second.params.flat, kept)
    assert not second.grad.flat.any()


def test_another_threads_batch_does_not_touch_what_a_loss_over_the_whole_batch_waits_for(
    make_engine, randomise, examples, curved_loss
):
    engine = make_engine()
    model, other = randomise(engine.create_adapter(rank=3)), engine.create_adapter(rank=2)
    value = engine.forward_backward(model, examples, curved_loss).value
    alone = model.grad.flat.copy()
    longer = [Example(tokens=[5] * 40, targets=[5] * 40), Example(tokens=[6] * 40, targets=[6] * 40)]
    others = []

    def interrupted(indices, logprobs):
        others.append(threading.Thread(target=engine.forward_backward, args=(other, longer, total)))
        others[0].start()
        others[0].join(0.2)  # it gets its turn afterwards
        return curved_loss(indices, logprobs)

    model.grad.flat[...] = 0
    assert engine.forward_backward(model, examples, interrupted).value == value
    np.testing.assert_array_equal(model.grad.flat, alone)
    others[0].join(20)
    assert not others[0].is_alive()


def test_adam_equals_its_textbook_form():
    rng = np.random.default_rng(0)
    values = rng.normal(size=20)
    expected = values.copy()
    adam = Adam(values)
    settings = AdamParams(learning_rate=0.03, weight_decay=0.1, grad_clip=2.0)
    m = v = np.zeros(20)
    for step in range(1, 6):
        gradient = rng.normal(size=20)
        norm = np.linalg.norm(gradient)
        clipped = gradient * min(1.0, 2.0 / norm)
        m = 0.9 * m + 0.1 * clipped
        v = 0.95 * v + 0.05 * clipped**2
        expected = expected * (1 - 0.03 * 0.1)
        expected -= 0.03 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-8)
        assert adam.update(values, gradient.copy(), settings) == pytest.approx(norm)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_a_broken_gradient_changes_nothing():
    values = np.ones(3)
    adam = Adam(values)
    with pytest.raises(FloatingPointError, match="no optimiser step was made"):
        adam.update(values, np.array([1.0, np.nan, 0]), AdamParams(learning_rate=1))
    assert adam.step == 0
    np.testing.assert_array_equal(values, 1)


def test_a_gradient_too_large_for_float32_squares_is_clipped():
    values = np.zeros(4, np.float32)
    norm = Adam(values).update(values, np.full(4, 1e30, np.float32), AdamParams(learning_rate=0.1))
    assert norm == pytest.approx(2e30, rel=1e-6)
    assert np.isfinite(values).all()


def broken(value=0.0, gradient=None):
    def loss(indices, logprobs):
        grads = [np.ones_like(own) if gradient is None else gradient(own) for own in logprobs]
        return value, grads, {}

    return loss


@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (broken(float("nan")), FloatingPointError, "the loss is nan"),
        (broken(float("inf")), FloatingPointError, "the loss is inf"),
        (broken(gradient=lambda own: own * np.nan), FloatingPointError, "gradient for example 0 holds NaN"),
        (broken(gradient=lambda own: own[:-1]), ValueError, "has shape"),
        (lambda i, lp: (0.0, [], {}), ValueError, "0 gradients for 1 examples"),
    ],
)
def test_a_broken_loss_is_an_error_and_adds_no_gradient(make_engine, loss, error, message, separable):
    engine = make_engine()
    model = engine.create_adapter(rank=2)
    with pytest.raises(error, match=message):
        engine.forward_backward(model, [Example(tokens=[1, 2], targets=[2, 3])], loss, separable=separable)
    assert not model.grad.flat.any()


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (Example(tokens=[1] * 65, targets=[1] * 65), "65 tokens, but the model's context here is 64"),
        (Example(tokens=[1, 17], targets=[1, 2]), "tokens hold ids outside 0..16"),
        (Example(tokens=[1, 2], targets=[1, -1]), "targets hold ids outside"),
        (Example(tokens=[1, 2], targets=[1]), "do not fit"),
        (Example(tokens=[1, 2], targets=[1, 2], mask=np.ones(3, bool)), "mask has shape"),
        (Example(tokens=[1, 2], targets=[1, 2], mask=np.zeros(2, bool)), "none of the 1 examples"),
    ],
)
def test_an_example_that_cannot_be_trained_on_is_refused(make_engine, example, message):
    engine = make_engine()
    with pytest.raises(ValueError, match=message):
        engine.forward_backward(engine.create_adapter(rank=2), [example], total)


def test_token_ids_that_are_no_integers_are_refused():
    with pytest.raises(TypeError, match="integers"):
        Example(tokens=[1.5], targets=[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"targets": ("q_proj", "nope")}, r"unknown LoRA target modules \['nope'\]"),
        ({"targets": ()}, "no LoRA target modules"),
    ],
)
def test_adapter_settings_that_make_no_sense_are_refused(make_engine, settings, message):
    with pytest.raises(ValueError, match=message):
        make_engine().create_adapter(**settings)
