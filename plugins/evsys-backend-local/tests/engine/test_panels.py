import numpy as np
import pytest

from evsys_backend_local.engine import panels
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.panels import ROWS, SMALL_PRODUCT, WIDTH, Panels
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.workers import blas_info


@pytest.fixture
def engine(make_engine):
    return make_engine(np.float32)


def use(monkeypatch, *kernels):
    monkeypatch.setattr(panels, "KERNELS", frozenset(kernels))


def requests():
    return [SampleRequest(prompt=[1, 2, 3 + i], n=3 + i, max_tokens=9, seed=i) for i in range(4)]


@pytest.mark.parametrize("rows", [1, 7, ROWS, ROWS + 1, 3 * ROWS + 5])
@pytest.mark.parametrize("outputs", [5, WIDTH, 3 * WIDTH, 3 * WIDTH + 11])
def test_a_product_in_panels_is_the_plain_product(rows, outputs):
    rng = np.random.default_rng(rows * outputs)
    x, weight = rng.normal(size=(rows, 24)), rng.normal(size=(outputs, 24))
    out = np.full((rows, outputs), np.nan)
    Panels(weight).multiply(x, out)
    np.testing.assert_allclose(out, x @ weight.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inputs", [576, 1536, 4096, 80_000])
def test_no_product_with_a_panel_is_too_large_for_the_small_kernels(inputs):
    rows = Panels(np.empty((WIDTH, inputs), np.float32)).rows
    assert rows == 1 or (rows <= ROWS and rows * WIDTH * inputs <= SMALL_PRODUCT)


def test_samples_through_panels_are_those_without(engine, randomise, monkeypatch):
    model = randomise(engine.create_adapter(rank=3))
    use(monkeypatch)
    plain = engine.sample(model, requests())
    use(monkeypatch, blas_info()["kernel"])
    through = engine.sample(model, requests())
    for one, other in zip(plain, through, strict=True):
        assert [sample.tokens for sample in one.samples] == [sample.tokens for sample in other.samples]
        for a, b in zip(one.samples, other.samples, strict=True):
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def gradient(engine, model, data):
    def loss(_, logprobs):
        return 0.0, [np.full(own.shape, -1.0, np.float32) for own in logprobs], {}

    result = engine.forward_backward(model, data, loss, separable=True)
    found = model.grad.flat.copy()
    model.grad.flat[...] = 0
    return result.logprobs, found


def test_training_through_panels_is_that_without(engine, randomise, monkeypatch):
    model = randomise(engine.create_adapter(rank=3))
    rows = np.random.default_rng(0).integers(0, engine.shape.vocab, (5, 40))
    data = [Example(tokens=row[:-1], targets=row[1:]) for row in rows]
    use(monkeypatch)
    plain, expected = gradient(engine, model, data)
    use(monkeypatch, blas_info()["kernel"])
    multiplied, multiply = [], Panels.multiply
    monkeypatch.setattr(Panels, "multiply", lambda *args: multiplied.append(1) or multiply(*args))
    through, found = gradient(engine, model, data)
    assert len(multiplied) % (4 * engine.shape.layers) == 0 < len(multiplied)
    np.testing.assert_allclose(np.concatenate(through), np.concatenate(plain), atol=1e-5)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_only_the_frozen_base_is_laid_out_in_panels(engine, monkeypatch):
    use(monkeypatch, blas_info()["kernel"])
    made = []
    original = panels.ModelPanels
    monkeypatch.setattr(panels, "ModelPanels", lambda weights: made.append(weights) or original(weights))
    engine.sample(engine.create_full(), requests())
    assert made == []
    for model in (engine.base, engine.create_adapter(rank=2), engine.create_adapter(rank=4).snapshot()):
        engine.sample(model, requests())
    assert made == [engine.weights]


def test_panels_pay_only_in_float32_on_a_blas_with_small_kernels_and_for_models_that_fit(
    engine, make_engine, monkeypatch
):
    use(monkeypatch, blas_info()["kernel"])
    assert panels.pay(engine.weights)
    assert not panels.pay(make_engine(np.float64).weights)
    monkeypatch.setattr(panels, "MOST_BYTES", engine.weights.params.flat.nbytes - 1)
    assert not panels.pay(engine.weights)
    monkeypatch.undo()
    use(monkeypatch, "another family")
    assert not panels.pay(engine.weights)
