"""The model options that a backend declares to honour: the size of the adapter, and the weights it starts from."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from evsys.optional import declared
from evsys.types import AdamParams, ModelSpec
from evsys_conformance import toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import require, require_close
from evsys_conformance.running import run
from evsys_conformance.trial import CLOSE, Trial

__all__ = ["ModelOptionsConformance"]


class ModelOptionsConformance(PluginConformance):
    """The checks of a backend that concern its `honours`."""

    @check()
    def test_rank_is_that_of_the_model(self, trial: Trial, loaded: Any) -> None:
        """With `lora_rank` among its `honours`, adapters of two ranks have gradients of different norms."""
        _require_honoured(loaded, "lora_rank")
        small, large = (run(_norm(trial, _with_lora(trial.model, rank=rank))) for rank in (1, 8))
        require(
            abs(small - large) > 1e-3 * large,
            "it says that it honours lora_rank, and adapters of rank 1 and 8 have gradients of one norm",
            seen=small,
        )

    @check()
    def test_alpha_is_that_of_the_model(self, trial: Trial, loaded: Any) -> None:
        """With `lora_alpha` among its `honours`, a fresh adapter of twice the `alpha` has twice the gradient."""
        _require_honoured(loaded, "lora_alpha")
        alpha = trial.model.lora.alpha
        once, twice = (run(_norm(trial, _with_lora(trial.model, alpha=alpha * factor))) for factor in (1, 2))
        wrong = "it says that it honours lora_alpha, and twice the alpha doesn't double the gradient of a fresh adapter"
        require_close(twice / once, 2.0, wrong, rtol=0.1, atol=0.0)

    @check(needs="resume")
    def test_starts_from_a_checkpoint(self, trial: Trial, loaded: Any) -> None:
        """With `init_from_checkpoint` among its `honours`, training begins with the weights of that checkpoint."""
        _require_honoured(loaded, "init_from_checkpoint")

        async def both() -> tuple[list[Any], list[Any]]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                for _ in range(3):
                    await trial.step(client, data)
                saved = await trial.save(client, 3, "start")
                trained = await client.forward(data)
            # As a run gives it: the folder in the model, and what is in it as the state to restore.
            started = attrs.evolve(trial.model, init_from_checkpoint=str(saved.directory))
            begin = attrs.evolve(saved, step=0, with_optimizer=False)
            async with trial.client(model=started, restore=begin) as client:
                return list(trained.logprobs), list((await client.forward(data)).logprobs)

        for trained, begun in zip(*run(both()), strict=True):
            wrong = "it says that it honours init_from_checkpoint, and begins with other weights: logprobs"
            require_close(begun, trained, wrong, **CLOSE)


def _require_honoured(loaded: Any, option: str) -> None:
    if option not in declared(loaded, "honours", frozenset()):
        pytest.skip(f"doesn't say that it honours {option}")


def _with_lora(model: ModelSpec, **changes: Any) -> ModelSpec:
    return attrs.evolve(model, lora=attrs.evolve(model.lora, **changes))


async def _norm(trial: Trial, model: ModelSpec) -> float:
    async with trial.client(model=model) as client:
        await client.forward_backward(toy.datums(client.renderer), "cross_entropy")
        result = await client.optim_step(AdamParams(learning_rate=1e-30, grad_clip=0.0))
        if result.grad_norm is None:
            pytest.skip("doesn't report the gradient's norm")
        return float(result.grad_norm)
