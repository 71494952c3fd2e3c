"""`compute_loss`: every form of loss, and every way to get one wrong."""

import functools
import math

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys import PluginEntry, Registry, register_loss, use_registry
from evsys.errors import AlgorithmError
from evsys.types import Datum, LossResult
from evsys_runtime.losses import BUILTIN_LOSSES, compute_loss, loss, stop_gradient
from evsys_runtime.losses.frameworks import framework_of


def batch(rng, shapes):
    data, logprobs = [], []
    for i, shape in enumerate(shapes):
        sampled = -rng.uniform(0.05, 3.0, shape)
        inputs = {
            "target_tokens": rng.integers(0, 50, shape),
            "weights": rng.choice([0.0, 0.5, 1.0], shape),
            "advantages": rng.normal(size=shape),
            "logprobs": sampled,
            "ref_logprobs": sampled + rng.normal(scale=0.2, size=shape),
        }
        data.append(Datum(tokens=np.arange(shape[0]), loss_inputs=inputs, meta={"pair": i // 2}))
        logprobs.append(sampled + rng.normal(scale=0.4, size=shape))
    return data, logprobs


# --- the same losses as a user would write them, in plain numpy ------------------------------------------------------


def numpy_cross_entropy(data, logprobs):
    return sum(-np.sum(d.loss_inputs["weights"] * lp) for d, lp in zip(data, logprobs, strict=True))


def _terms(data, logprobs):
    for d, lp in zip(data, logprobs, strict=True):
        yield (
            d.loss_inputs["weights"],
            d.loss_inputs["advantages"],
            np.exp(lp - d.loss_inputs["logprobs"]),
            lp,
            d,
        )


def numpy_importance_sampling(data, logprobs):
    return sum(-np.sum(m * r * a) for m, a, r, _, _ in _terms(data, logprobs))


def numpy_ppo(data, logprobs):
    return sum(
        -np.sum(m * np.minimum(r * a, np.clip(r, 0.8, 1.28) * a)) for m, a, r, _, _ in _terms(data, logprobs)
    )


def numpy_cispo(data, logprobs):
    return sum(
        -np.sum(m * stop_gradient(np.minimum(r, 1.28)) * a * lp) for m, a, r, lp, _ in _terms(data, logprobs)
    )


def numpy_dro(data, logprobs):
    return sum(
        -np.sum(m * (lp * a - 0.025 * (lp - d.loss_inputs["logprobs"]) ** 2))
        for m, a, _, lp, d in _terms(data, logprobs)
    )


def numpy_gspo(data, logprobs):
    total = 0.0
    for m, a, _, lp, d in _terms(data, logprobs):
        spoken = (m != 0).astype(float)
        s = np.exp(np.sum(spoken * (lp - d.loss_inputs["logprobs"])) / max(spoken.sum(), 1.0))
        total = total - np.sum(m * np.minimum(s * a, np.clip(s, 1 - 3e-4, 1 + 4e-4) * a))
    return total


WRITTEN = {
    "cross_entropy": numpy_cross_entropy,
    "importance_sampling": numpy_importance_sampling,
    "ppo": numpy_ppo,
    "cispo": numpy_cispo,
    "dro": numpy_dro,
    "gspo": numpy_gspo,
}

SHAPES = st.lists(
    st.one_of(st.tuples(st.integers(1, 9)), st.tuples(st.integers(1, 6), st.integers(1, 5))),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", BUILTIN_LOSSES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shapes=SHAPES)
def test_a_built_in_loss_equals_the_same_loss_written_in_numpy(name, seed, shapes):
    data, logprobs = batch(np.random.default_rng(seed), shapes)
    built_in = compute_loss(name, data, logprobs)
    written = compute_loss(WRITTEN[name], data, logprobs)
    assert built_in.loss == pytest.approx(written.loss, rel=1e-12, abs=1e-12)
    for ours, theirs in zip(built_in.grads, written.grads, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


def focal(data, logprobs, gamma=2.0):
    total = 0.0
    for datum, lp in zip(data, logprobs, strict=True):
        total += np.sum(-datum.loss_inputs["weights"] * (1 - np.exp(lp)) ** gamma * lp)
    return total, {"nll": numpy_cross_entropy(data, logprobs)}


def dpo(data, logprobs, beta=0.1):
    margins = [
        np.sum(d.loss_inputs["weights"] * (lp - d.loss_inputs["ref_logprobs"]))
        for d, lp in zip(data, logprobs, strict=True)
    ]
    chosen, rejected = np.stack(margins[::2]), np.stack(margins[1::2])
    logits = beta * (chosen - rejected)
    return np.mean(np.logaddexp(0.0, -logits)), {"accuracy": np.mean(logits > 0)}


def gspo(data, logprobs, clip=0.2):
    total = 0.0
    for m, a, _, lp, d in _terms(data, logprobs):
        advantage = np.mean(a)
        ratio = np.exp(np.sum(m * (lp - d.loss_inputs["logprobs"])) / max(m.sum(), 1.0))
        total = total - np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    return total


@pytest.mark.parametrize("function", [focal, dpo, gspo])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lengths=st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_losses_of_the_literature_written_in_numpy_pass_finite_differences(function, seed, lengths):
    shapes = [(n,) for n in lengths[: len(lengths) // 2 * 2]]
    data, logprobs = batch(np.random.default_rng(seed), shapes)
    result = compute_loss(function, data, logprobs)

    def value(arrays):
        found = function(data, arrays)
        return float(found[0] if isinstance(found, tuple) else found)

    assert result.loss == pytest.approx(value(logprobs), rel=1e-12)
    eps = 1e-6
    for i, array in enumerate(logprobs):
        for k in range(len(array)):
            up, down = ([other.copy() for other in logprobs] for _ in range(2))
            up[i][k] += eps
            down[i][k] -= eps
            assert result.grads[i][k] == pytest.approx(
                (value(up) - value(down)) / (2 * eps), rel=1e-4, abs=1e-6
            )


# --- forms -----------------------------------------------------------------------------------------------------------


def one():
    data, logprobs = batch(np.random.default_rng(3), [(4,), (3, 2)])
    return data, [array.astype(np.float32) for array in logprobs]


def test_metrics_and_settings_reach_and_leave_the_loss():
    data, logprobs = one()
    sharp, flat = (compute_loss(focal, data, logprobs, {"gamma": gamma}) for gamma in (3.0, 0.0))
    assert sharp.loss < flat.loss
    assert flat.metrics == {"nll": pytest.approx(flat.loss)}
    assert compute_loss(functools.partial(focal, gamma=3.0), data, logprobs).loss == sharp.loss


def test_a_loss_may_bring_its_own_gradients_from_any_library():
    data, logprobs = one()

    def annotated(data, logprobs) -> LossResult:
        assert all(type(array) is np.ndarray for array in logprobs)
        return LossResult(loss=1.0, grads=[np.full(lp.shape, 2.0) for lp in logprobs], metrics={"x": 1})

    def silent(data, logprobs):  # needs plain arrays, and says nothing about it
        return LossResult(loss=1.0, grads=[np.sort(np.array(lp)) * 0 + 2.0 for lp in logprobs])

    for function in (annotated, silent):
        result = compute_loss(function, data, logprobs)
        assert result.loss == 1.0
        assert all((grad == 2.0).all() for grad in result.grads)
        assert [grad.dtype for grad in result.grads] == [np.float32, np.float32]
    assert compute_loss(annotated, data, logprobs).metrics == {"x": 1.0}


def test_a_callable_object_is_a_loss_too():
    class Focal:
        def __call__(self, data, logprobs):
            return focal(data, logprobs)

    data, logprobs = one()
    assert compute_loss(Focal(), data, logprobs).loss == compute_loss(focal, data, logprobs).loss


def test_names_are_looked_up_in_the_registry_and_classes_are_built_from_their_settings():
    class Scaled:
        @attrs.frozen
        class Config:
            scale: float = 1.0

        def __init__(self, scale):
            self.scale = scale

        def __call__(self, data, logprobs):
            return self.scale * numpy_cross_entropy(data, logprobs)

    data, logprobs = one()
    registry = Registry(entry_points=())
    registry.register("loss", "scaled", Scaled)
    assert compute_loss("ppo", data, logprobs, registry=registry).loss == pytest.approx(
        BUILTIN_LOSSES["ppo"](data, logprobs).loss
    )
    plain = compute_loss("cross_entropy", data, logprobs).loss
    assert compute_loss("scaled", data, logprobs, {"scale": 3.0}, registry).loss == pytest.approx(3 * plain)


def test_a_projects_loss_takes_the_place_of_the_built_in_one_of_its_name_with_a_warning():
    data, logprobs = one()
    with use_registry(Registry(entry_points=())) as registry:
        register_loss("cross_entropy")(numpy_ppo)
        for given in (None, registry):
            ours = compute_loss("cross_entropy", data, logprobs, registry=given).loss
            assert ours == pytest.approx(BUILTIN_LOSSES["ppo"](data, logprobs).loss)
    assert registry.warnings == ["loss 'cross_entropy' is the project's own and hides the built-in one"]


def test_an_installed_loss_does_not_take_a_built_in_ones_place():
    entry = PluginEntry("loss", "cross_entropy", "evsys-odd", value="nowhere:Nothing")
    data, logprobs = one()
    found = compute_loss("cross_entropy", data, logprobs, registry=Registry(entry_points=[entry]))
    assert found.loss == BUILTIN_LOSSES["cross_entropy"](data, logprobs).loss


def test_a_loss_that_would_lose_its_gradient_on_the_way_is_refused_in_the_tapes_words():
    def assigning(data, logprobs):
        weights = np.zeros(len(logprobs[0]))
        weights[0] = logprobs[0][0]
        return (weights * logprobs[0]).sum()

    def outside_numpy(data, logprobs):
        return math.exp(logprobs[0][0]) * logprobs[0].sum()

    data, logprobs = one()
    for function in (assigning, outside_numpy):
        with pytest.raises(AlgorithmError, match=r"np\.exp\(x\).*np\.concatenate.*x\.item\(\)"):
            compute_loss(function, data, logprobs)


def test_metrics_may_be_traced_or_plain_numbers():
    def loss(data, logprobs):
        mean = logprobs[0].mean()
        return -mean, {"traced": mean, "plain": mean.item()}

    data, logprobs = one()
    found = compute_loss(loss, data, logprobs)
    assert found.metrics == {"traced": -found.loss, "plain": -found.loss}


# --- mistakes --------------------------------------------------------------------------------------------------------


async def _asynchronous(data, logprobs):
    return 0.0


MISTAKES = {
    "float": (lambda data, logprobs: float(logprobs[0].sum()), r"gradient would be lost.*x\.item\(\)"),
    "item": (lambda data, logprobs: logprobs[0].sum().item(), r"returned float.*without \.item\(\)"),
    "nothing": (lambda data, logprobs: None, "returned NoneType"),
    "vector": (lambda data, logprobs: logprobs[0] * 2, "sum it"),
    "three": (lambda data, logprobs: (logprobs[0].sum(), {}, 1), r"\(scalar, metrics\)"),
    "nan": (lambda data, logprobs: np.log(-abs(logprobs[0])).sum(), "is nan"),
    "async": (_asynchronous, "not async"),
    "few gradients": (lambda data, logprobs: LossResult(loss=0.0, grads=[]), "0 of 2 data"),
    "shape": (
        lambda data, logprobs: LossResult(loss=0.0, grads=[np.zeros(4), np.zeros(3)]),
        r"shape \[3\] for datum 1, expected \[3, 2\]",
    ),
    "gradient": (
        lambda data, logprobs: LossResult(loss=0.0, grads=[np.array([0, 0, np.inf, 0]), np.zeros((3, 2))]),
        "gradient of inf in datum 0 at position 2",
    ),
    "unsupported": (lambda data, logprobs: np.sort(logprobs[0]).sum(), "numpy.sort"),
    "raises": (lambda data, logprobs: 1 / 0, "ZeroDivisionError"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("function", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_loss_is_an_error_that_names_it_and_says_why(function, message):
    data, logprobs = one()
    with pytest.raises(AlgorithmError, match=message) as caught:
        compute_loss(function, data, logprobs)
    assert "loss" in str(caught.value)
    assert function.__name__ in str(caught.value)


def _overflows(data, logprobs):
    return sum((lp * 1e200 * 1e200).sum() for lp in logprobs)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("function", "odd", "hint"),
    [
        ("cross_entropy", np.nan, "lower the learning rate"),
        ("cross_entropy", -np.inf, "lower the learning rate"),
        ("ppo", np.nan, "lower the learning rate"),
        (lambda data, logprobs: sum(lp.sum() for lp in logprobs), np.nan, "lower the learning rate"),
        (_overflows, None, "look for log(0)"),
        (
            lambda data, logprobs: LossResult(loss=0.0, grads=[lp * np.nan for lp in logprobs]),
            None,
            "look for log(0)",
        ),
    ],
    ids=["nan", "-inf", "ppo", "own loss of a diverged model", "own formula", "own gradient"],
)
def test_a_loss_that_is_not_finite_says_whether_the_model_or_the_formula_is_to_blame(function, odd, hint):
    data, logprobs = one()
    if odd is not None:
        logprobs[0][0] = odd
    with pytest.raises(AlgorithmError) as caught:
        compute_loss(function, data, logprobs)
    assert hint in caught.value.hint


def test_a_setting_that_a_loss_does_not_have_is_an_error_that_names_both():
    data, logprobs = one()
    with pytest.raises(AlgorithmError, match=r"loss ppo.*'gamma'"):
        compute_loss("ppo", data, logprobs, {"gamma": 1.0})


# --- torch and jax ---------------------------------------------------------------------------------------------------


def _torch_annotated(data: list, logprobs: "list[torch.Tensor]"):  # noqa: F821
    return sum(lp.sum() for lp in logprobs)


def _jax_annotated(data: list, logprobs: "list[jax.Array]"):  # noqa: F821
    return sum(lp.sum() for lp in logprobs)


@loss(framework="torch")
def _torch_marked(data, logprobs):
    return sum(lp.sum() for lp in logprobs)


def test_frameworks_are_found_by_mark_or_annotation_and_numpy_is_the_default():
    assert framework_of(_torch_annotated) == framework_of(_torch_marked) == "torch"
    assert framework_of(functools.partial(_torch_marked)) == "torch"
    assert framework_of(_jax_annotated) == "jax"
    assert framework_of(focal) == framework_of(lambda: 0) == framework_of(print) == "numpy"


def test_an_annotation_that_is_a_class_of_a_library_counts_too():
    tensor = type("Tensor", (), {"__module__": "torch"})

    def annotated(data, logprobs: list[tensor]):
        return None

    assert framework_of(annotated) == "torch"


@pytest.mark.parametrize(("module", "function"), [("torch", _torch_annotated), ("jax", _jax_annotated)])
def test_a_missing_library_is_named_with_the_command_that_brings_it(monkeypatch, module, function):
    monkeypatch.setitem(__import__("sys").modules, module, None)  # as if it weren't installed
    data, logprobs = one()
    with pytest.raises(AlgorithmError, match=f"pip install {module}"):
        compute_loss(function, data, logprobs)


def _library_ppo(np_like, exp_min):
    def ppo(data, logprobs):
        total = 0.0
        for d, lp in zip(data, logprobs, strict=True):
            inputs = d.loss_inputs
            ratio = np_like.exp(lp - inputs["logprobs"])
            objective = exp_min(
                ratio * inputs["advantages"], np_like.clip(ratio, 0.8, 1.28) * inputs["advantages"]
            )
            total = total - (inputs["weights"] * objective).sum()
        return total, {"ratio": ratio.mean()}

    return ppo


def test_a_torch_loss_is_differentiated_by_torch():
    torch = pytest.importorskip("torch")
    data, logprobs = batch(np.random.default_rng(1), [(5,), (3, 2)])
    function = loss(framework="torch")(_library_ppo(torch, torch.minimum))
    ours, theirs = compute_loss("ppo", data, logprobs), compute_loss(function, data, logprobs)
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-9)
    for a, b in zip(ours.grads, theirs.grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert isinstance(theirs.metrics["ratio"], float)
    detached = loss(framework="torch")(lambda data, logprobs: logprobs[0].detach().sum())
    with pytest.raises(AlgorithmError, match="doesn't depend on the logprobs"):
        compute_loss(detached, data, logprobs)


def test_a_jax_loss_is_differentiated_by_jax():
    jax = pytest.importorskip("jax")
    data, logprobs = batch(np.random.default_rng(1), [(5,), (3, 2)])
    function = loss(framework="jax")(_library_ppo(jax.numpy, jax.numpy.minimum))
    ours, theirs = compute_loss("ppo", data, logprobs), compute_loss(function, data, logprobs)
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-5)
    for a, b in zip(ours.grads, theirs.grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
