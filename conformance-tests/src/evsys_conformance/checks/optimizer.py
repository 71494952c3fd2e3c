"""The contract of a training client for `AdamParams`: each setting has the effect that Adam's formulas give it.

With `eps` far above every gradient, Adam's step is `learning_rate / eps` times the first moment, which makes its
effect on the loss proportional to it. So each check compares how far the loss falls with one setting and with
another.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from evsys.types import AdamParams, Datum
from evsys_conformance import toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import require, require_close
from evsys_conformance.running import run
from evsys_conformance.trial import Trial

__all__ = ["OptimizerConformance"]

_STILL = 1e-30
"""A learning rate at which nothing moves."""

_SHARE = 0.02
"""About the share of the loss that a step is meant to take off: small enough for the loss to be a line."""

_FAR_ABOVE = 1000.0
"""How many gradient norms `eps` is."""


class OptimizerConformance(PluginConformance):
    """The checks of a backend that concern its optimiser."""

    @check()
    def test_eps_is_that_of_the_step(self, trial: Trial) -> None:
        """Far above the gradients, twice the `eps` halves the step."""
        once, half = _falls(trial, {"eps": 1.0}, {"eps": 2.0})
        _require_ratio(half / once, 0.5, "twice the eps, far above the gradients, doesn't halve the step")

    @check()
    def test_grad_clip_is_that_of_the_step(self, trial: Trial) -> None:
        """`grad_clip` scales the gradient to that norm; 0 leaves it."""
        free, clipped = _falls(trial, {"grad_clip": 0.0}, {"grad_clip": 0.25})
        _require_ratio(
            clipped / free,
            0.25,
            "clipped to a quarter of its norm, the gradient doesn't move the loss a quarter as far",
        )

    @check()
    def test_gradient_norm_is_that_before_clipping(self, trial: Trial) -> None:
        """`grad_norm` is the norm before clipping."""
        free, _ = run(_gradient(trial))
        clipped, _ = run(_gradient(trial, grad_clip=free / 4))
        wrong = "with grad_clip below it, another gradient norm is reported than without"
        require_close(clipped, free, wrong, rtol=5e-3, atol=0.0)

    @check()
    def test_beta1_is_that_of_the_step(self, trial: Trial) -> None:
        """A step without a gradient continues by `beta1 / (1 + beta1)` of the gradient before it."""
        high, low = _falls(trial, {"beta1": 0.9}, {"beta1": 0.1}, coasting=True)
        _require_ratio(
            low / high,
            (0.1 / 1.1) / (0.9 / 1.9),
            "a step without a gradient doesn't depend on beta1 as Adam's does",
        )

    @check()
    def test_beta2_is_that_of_the_step(self, trial: Trial) -> None:
        """A step without a gradient is divided by the root of `beta2 / (1 + beta2)` times the gradient before it."""
        adam = AdamParams(learning_rate=trial.learning_rate / 20, eps=1e-12, grad_clip=0.0)
        high, low = (
            run(_fall(trial, attrs.evolve(adam, beta2=beta2), coasting=True)) for beta2 in (0.95, 0.05)
        )
        wanted = ((0.95 / 1.95) / (0.05 / 1.05)) ** 0.5
        _require_ratio(
            low / high if high else 0.0,
            wanted,
            "a step without a gradient doesn't depend on beta2 as Adam's does",
        )

    @check()
    def test_weight_decay_is_that_of_the_step(self, trial: Trial) -> None:
        """`weight_decay` times the learning rate is the share of the trained weights that a step takes away (AdamW)."""
        before, kept, decayed = (
            run(_decay_losses(trial, trained, decay)) for trained, decay in ((0, 0.0), (1, 0.0), (1, 50.0))
        )
        require(
            decayed - kept > 0.1 * (before - kept) > 0,
            "a weight decay that takes half of the trained weights away leaves the loss where training brought it",
            seen={"untrained": before, "trained": kept, "decayed": decayed},
            wanted="a loss on the way back to that of the untrained model",
        )

    @check(needs="resume")
    def test_restores_without_the_optimizer_if_told(self, trial: Trial) -> None:
        """From a checkpoint with `with_optimizer=False` the moments begin at zero: a step without a gradient moves nothing."""

        async def moved(*, with_optimizer: bool) -> float:
            async with trial.client(seed=1) as client:
                data = toy.datums(client.renderer)
                _, optim = await trial.step(client, data)
                folder = "with" if with_optimizer else "without"
                saved = attrs.evolve(await trial.save(client, 1, folder), with_optimizer=with_optimizer)
            async with trial.client(seed=1, restore=saved) as client:
                before = await _loss(client, data)
                await client.forward_backward(_weightless(data), "cross_entropy")
                eps = 1e-6 * (optim.grad_norm or 1.0)  # far above what is left of the gradient
                await client.optim_step(AdamParams(learning_rate=trial.learning_rate, eps=eps))
                return abs(await _loss(client, data) - before)

        kept, begun = run(moved(with_optimizer=True)), run(moved(with_optimizer=False))
        require(
            begun <= max(0.2 * kept, 1e-4),
            "restored with with_optimizer=False, a step without a gradient still moves the weights: the moments were restored",
            seen={"with the optimiser": kept, "without": begun},
            wanted="next to no change of the loss without the optimiser",
        )


def _falls(trial: Trial, *settings: dict[str, float], coasting: bool = False) -> list[float]:
    """How far the loss falls in a step with each of some settings; `eps` and `grad_clip` are in gradient norms."""
    norm, loss = run(_gradient(trial))
    base = {"learning_rate": _SHARE * abs(loss) / norm * _FAR_ABOVE, "eps": 1.0, "grad_clip": 0.0}
    found = []
    for given in settings:
        adam = AdamParams(**base | given)
        adam = attrs.evolve(adam, eps=adam.eps * norm * _FAR_ABOVE, grad_clip=adam.grad_clip * norm)
        found.append(run(_fall(trial, adam, coasting=coasting)))
    require(
        found[0] > 0,
        "a step along the gradient doesn't make the loss fall",
        seen=found[0],
        wanted="a positive number",
    )
    return found


async def _fall(trial: Trial, adam: AdamParams, *, coasting: bool) -> float:
    """How far the loss falls in one step of a fresh client; `coasting`: in a step without a gradient after one at a
    learning rate of 0.
    """
    async with trial.client() as client:
        data = toy.datums(client.renderer)
        if coasting:
            await client.forward_backward(data, "cross_entropy")
            await client.optim_step(attrs.evolve(adam, learning_rate=_STILL))
        before = await _loss(client, data)
        await client.forward_backward(_weightless(data) if coasting else data, "cross_entropy")
        await client.optim_step(adam)
        return before - await _loss(client, data)


async def _decay_losses(trial: Trial, trained: int, decay: float) -> float:
    """The loss after so many training steps, and one without a gradient that decays the weights."""
    async with trial.client() as client:
        data = toy.datums(client.renderer)
        for _ in range(trained):
            await trial.step(client, data, learning_rate=3 * trial.learning_rate)
        await client.forward_backward(_weightless(data), "cross_entropy")
        await client.optim_step(AdamParams(learning_rate=0.01, eps=1e12, weight_decay=decay))
        return await _loss(client, data)


async def _gradient(trial: Trial, *, grad_clip: float = 0.0) -> tuple[float, float]:
    """The norm of the gradient of the toy task, and the loss."""
    async with trial.client() as client:
        data = toy.datums(client.renderer)
        loss = await _loss(client, data)
        await client.forward_backward(data, "cross_entropy")
        result = await client.optim_step(AdamParams(learning_rate=_STILL, grad_clip=grad_clip))
        if result.grad_norm is None:
            pytest.skip("doesn't report the gradient's norm")
        return float(result.grad_norm), loss


async def _loss(client: Any, data: list[Datum]) -> float:
    """The cross entropy by the logprobs of a forward pass."""
    result = await client.forward(data)
    pairs = zip(data, result.logprobs, strict=True)
    return float(
        -sum(np.sum(datum.loss_inputs["weights"] * np.asarray(logprobs)) for datum, logprobs in pairs)
    )


def _weightless(data: list[Datum]) -> list[Datum]:
    """The same rows with next to no gradient."""
    return [
        attrs.evolve(
            datum,
            loss_inputs={**datum.loss_inputs, "weights": datum.loss_inputs["weights"] * np.float32(1e-9)},
        )
        for datum in data
    ]


def _require_ratio(seen: float, wanted: float, wrong: str) -> None:
    require(
        0.6 * wanted <= seen <= 1.6 * wanted,
        wrong,
        seen=round(seen, 4),
        wanted=f"the loss falls {wanted:.3g} times as far",
    )
