"""Custom losses on backends that don't know them: two passes give the weights that one pass gives."""

import numpy as np
import pytest

from evsys import Registry, register_loss, use_registry
from evsys.errors import AlgorithmError, PluginNotFoundError
from evsys.types import AdamParams, Datum, ModelSpec
from evsys_backend_mock import MockBackend
from evsys_runtime.losses import BUILTIN_LOSSES
from evsys_runtime.training.two_pass import forward_backward, plan_loss

ONE = MockBackend.capabilities
TWO = frozenset({"loss_fns:cross_entropy"})


def focal(data, logprobs):
    return sum(
        np.sum(-d.loss_inputs["weights"] * (1 - np.exp(x)) ** 2 * x)
        for d, x in zip(data, logprobs, strict=True)
    )


def dpo(data, logprobs):
    margins = [np.sum(x - d.loss_inputs["ref_logprobs"]) for d, x in zip(data, logprobs, strict=True)]
    return np.logaddexp(0.0, -0.1 * (np.stack(margins[::2]) - np.stack(margins[1::2]))).sum(), {"pairs": 2.0}


def gspo(data, logprobs):
    total = 0.0
    for d, x in zip(data, logprobs, strict=True):
        ratio, advantage = np.exp(np.mean(x - d.loss_inputs["logprobs"])), d.loss_inputs["advantages"].mean()
        total += -np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.1) * advantage)
    return total


async def client(tmp_path):
    return await MockBackend().prepare(ModelSpec(name="m"), tmp_path, 0)


async def batches(model, steps=3):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        data = []
        for n in (5, 7, 6, 4):
            tokens = rng.integers(0, 259, n + 1)
            plain = Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:]})
            (now,) = (await model.forward([plain])).logprobs
            inputs = {
                "weights": rng.choice([0.0, 0.25], n),
                "advantages": rng.normal(size=n),
                "logprobs": now + rng.normal(scale=0.2, size=n),
                "ref_logprobs": now + rng.normal(scale=0.2, size=n),
            }
            data.append(Datum(tokens=plain.tokens, loss_inputs={**plain.loss_inputs, **inputs}))
        yield data


@pytest.mark.parametrize(
    "loss", [*BUILTIN_LOSSES, focal, dpo, gspo], ids=lambda loss: getattr(loss, "__name__", str(loss))
)
async def test_two_passes_leave_the_weights_of_one(tmp_path, loss):
    one, two = await client(tmp_path), await client(tmp_path)
    async for data in batches(await client(tmp_path)):
        results = []
        for model, capabilities in ((one, ONE), (two, TWO)):
            results.append(await forward_backward(model, capabilities, data, loss))
            await model.optim_step(AdamParams(learning_rate=1e-3))
        assert results[1].loss == pytest.approx(results[0].loss, rel=1e-12)
        assert results[1].metrics == pytest.approx(results[0].metrics)
        assert results[1].tokens == results[0].tokens == 22
    np.testing.assert_allclose(one._model.A, two._model.A, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one._model.B, two._model.B, rtol=0, atol=1e-12)
    assert one._model.B.any()


@pytest.mark.parametrize(
    ("loss", "capabilities", "passes", "by_name"),
    [
        ("ppo", {"loss_fns:ppo"}, 1, True),
        ("ppo", {"loss_fns"}, 1, True),
        ("ppo", {"loss_fns:cross_entropy"}, 2, False),
        ("ppo", {"loss_fns:cross_entropy", "custom_loss"}, 1, False),
        (focal, {"custom_loss"}, 1, False),
        (focal, {"loss_fns"}, 2, False),
    ],
)
def test_the_number_of_passes_follows_from_what_the_backend_declares(loss, capabilities, passes, by_name):
    plan = plan_loss(frozenset(capabilities), loss, {"clip_low": 0.1} if loss == "ppo" else {})
    assert plan.passes == passes
    assert isinstance(plan.loss_fn, str) == by_name
    if loss == "ppo":
        assert plan.params == {"clip_low": 0.1}


def test_a_loss_registered_by_the_project_is_no_backends_own():
    with use_registry(Registry(entry_points=())):
        register_loss("focal")(focal)
        plan = plan_loss(frozenset({"loss_fns", "custom_loss"}), "focal")
        assert (plan.loss_fn, plan.passes) == (focal, 1)
        with pytest.raises(PluginNotFoundError):
            plan_loss(frozenset({"custom_loss"}), "no_such_loss")


@pytest.mark.parametrize("name", BUILTIN_LOSSES)
@pytest.mark.parametrize(("more", "passes"), [((), 2), (("custom_loss",), 1)])
def test_a_projects_loss_under_a_built_in_ones_name_is_handed_over_as_a_function(name, more, passes):
    with use_registry(Registry(entry_points=())) as registry:
        plan = plan_loss(frozenset({"loss_fns", f"loss_fns:{name}", *more}), name)
        assert (plan.loss_fn, plan.passes) == (name, 1)
        register_loss(name)(focal)
        for given in (None, registry):
            plan = plan_loss(frozenset({"loss_fns", f"loss_fns:{name}", *more}), name, registry=given)
            assert (plan.loss_fn, plan.passes) == (focal, passes)


async def test_two_passes_of_a_loss_called_cross_entropy_end_in_the_backends_own(tmp_path):
    one, two, plain = await client(tmp_path), await client(tmp_path), await client(tmp_path)
    with use_registry(Registry(entry_points=())):
        register_loss("cross_entropy")(focal)
        async for data in batches(await client(tmp_path)):
            for model, capabilities, loss in (
                (one, ONE, "cross_entropy"),
                (two, TWO, "cross_entropy"),
                (plain, ONE, focal),
            ):
                await forward_backward(model, capabilities, data, loss)
                await model.optim_step(AdamParams(learning_rate=1e-3))
    for model in (one, two):
        np.testing.assert_allclose(model._model.B, plain._model.B, rtol=0, atol=1e-12)
    assert plain._model.B.any()


async def test_a_loss_that_fails_between_the_passes_leaves_no_gradient(tmp_path):
    model = await client(tmp_path)
    async for data in batches(model, steps=1):
        with pytest.raises(AlgorithmError, match="ZeroDivisionError"):
            await forward_backward(model, TWO, data, lambda data, logprobs: 1 / 0)
    assert model._gradient is None
