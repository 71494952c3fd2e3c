import numpy as np
import pytest


def worst_error(engine, model, examples, loss, per_array=5):
    """Largest relative difference between the analytic gradient and central differences, over all arrays."""

    def value():
        if model.lora is not None:
            model.lora.refresh()
        return loss(range(len(examples)), engine.forward(model, examples))[0]

    worst = 0.0
    for name, array in model.params.items():
        flat, gradient = array.reshape(-1), model.grad[name].reshape(-1)
        picked = np.random.default_rng(0).choice(flat.size, min(flat.size, per_array), replace=False)
        numeric = []
        for index in picked:
            old, step = flat[index], 1e-5
            flat[index] = old + step
            up = value()
            flat[index] = old - step
            down = value()
            flat[index] = old
            numeric.append((up - down) / (2 * step))
        value()
        numeric = np.asarray(numeric)
        worst = max(worst, np.abs(numeric - gradient[picked]).max() / (np.abs(numeric).max() + 1e-9))
    return worst


@pytest.mark.parametrize("separable", [True, False])
def test_lora_gradients_equal_finite_differences(
    make_engine, randomise, examples, curved_loss, variant, separable
):
    engine = make_engine(**variant)
    model = randomise(engine.create_adapter(rank=3, alpha=6.0))
    engine.forward_backward(model, examples, curved_loss, separable=separable)
    assert np.abs(model.grad.flat).min() > 0 or np.count_nonzero(model.grad.flat) > 0.9 * model.grad.flat.size
    assert worst_error(engine, model, examples, curved_loss) < 1e-5


def test_full_gradients_equal_finite_differences(make_engine, examples, curved_loss, variant):
    engine = make_engine(**variant)
    model = engine.create_full()
    engine.forward_backward(model, examples, curved_loss)
    assert worst_error(engine, model, examples, curved_loss) < 1e-5


def test_gradients_of_a_subset_of_targets_equal_finite_differences(
    make_engine, randomise, examples, curved_loss
):
    engine = make_engine()
    model = randomise(engine.create_adapter(rank=2, targets=("v_proj", "q_proj", "up_proj")))
    assert len(model.params) == 2 * 2 * 3
    engine.forward_backward(model, examples, curved_loss)
    assert worst_error(engine, model, examples, curved_loss) < 1e-5


def test_gradients_do_not_depend_on_what_is_kept_or_computed_again(
    make_engine, randomise, examples, curved_loss, monkeypatch
):
    engine = make_engine(max_rows=16)
    model = randomise(engine.create_adapter(rank=3))
    engine.forward_backward(model, examples, curved_loss)
    kept = model.grad.flat.copy()
    model.grad.flat[...] = 0
    monkeypatch.setattr("evsys_backend_local.engine.batch.KEEP_ACTIVATIONS_BYTES", 0)
    monkeypatch.setattr("evsys_backend_local.engine.model.KEEP_PROBABILITIES_BYTES", 0)
    monkeypatch.setattr("evsys_backend_local.engine.head.KEEP_BYTES", 0)
    monkeypatch.setattr("evsys_backend_local.engine.head.CHUNK_ROWS", 3)
    engine.forward_backward(model, examples, curved_loss)
    np.testing.assert_allclose(model.grad.flat, kept, rtol=1e-9, atol=1e-12)


def test_gradients_add_up_until_the_optimiser_steps(make_engine, randomise, examples, curved_loss):
    engine = make_engine()
    model = randomise(engine.create_adapter(rank=3))
    engine.forward_backward(model, examples, curved_loss)
    once = model.grad.flat.copy()
    engine.forward_backward(model, examples, curved_loss)
    np.testing.assert_allclose(model.grad.flat, 2 * once, rtol=1e-12)


def test_separable_and_joint_loss_agree_in_value_metrics_and_gradient(
    make_engine, randomise, examples, curved_loss
):
    engine = make_engine(max_rows=16)
    model = randomise(engine.create_adapter(rank=3))
    joint = engine.forward_backward(model, examples, curved_loss)
    gradient = model.grad.flat.copy()
    model.grad.flat[...] = 0
    apart = engine.forward_backward(model, examples, curved_loss, separable=True)
    assert apart.value == pytest.approx(joint.value, rel=1e-12)
    assert apart.metrics == joint.metrics == {"examples": 6.0}
    np.testing.assert_allclose(model.grad.flat, gradient, rtol=1e-10, atol=1e-13)


def test_gradient_at_masked_positions_is_ignored(make_engine, randomise, examples):
    engine = make_engine()
    model = randomise(engine.create_adapter(rank=3))

    def loss(indices, logprobs, outside=0.0):
        grads = []
        for index, own in zip(indices, logprobs, strict=True):
            mask = examples[index].mask.reshape((-1,) + (1,) * (own.ndim - 1))
            assert not (own * ~mask).any()
            grads.append(np.where(mask, 1.0, outside) * np.ones(own.shape))
        return 0.0, grads, {}

    engine.forward_backward(model, examples, loss)
    expected = model.grad.flat.copy()
    model.grad.flat[...] = 0
    engine.forward_backward(model, examples, lambda i, lp: loss(i, lp, outside=7.0))
    np.testing.assert_array_equal(model.grad.flat, expected)
