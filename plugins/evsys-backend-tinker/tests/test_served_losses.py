"""Losses of one's own in plain numpy: in process in one pass, in process in two, and through the wire."""

import asyncio
from pathlib import Path

import attrs
import numpy as np
import pytest
from toy_training import ADAM, MODEL, TEXTS, backend, datum, logprobs

from evsys import Registry
from evsys.types import Datum
from evsys_runtime.training.two_pass import forward_backward


def focal(data, values, gamma=2.0):
    """Lin et al. 2017: what is known already counts less."""
    total = 0.0
    for one, lp in zip(data, values, strict=True):
        total += np.sum(-one.loss_inputs["weights"] * (1 - np.exp(lp)) ** gamma * lp)
    return total


def dpo(data, values, beta=0.5):
    """Rafailov et al. 2023, on pairs: the chosen first, then the rejected."""
    margins = [
        np.sum(one.loss_inputs["weights"] * (lp - one.loss_inputs["ref_logprobs"]))
        for one, lp in zip(data, values, strict=True)
    ]
    return np.mean(np.logaddexp(0.0, -beta * (np.stack(margins[::2]) - np.stack(margins[1::2]))))


def gspo(data, values, clip=0.2):
    """Zheng et al. 2025: one ratio a sequence."""
    total = 0.0
    for one, lp in zip(data, values, strict=True):
        ratio = np.exp(np.mean(lp - one.loss_inputs["logprobs"]))
        advantage = np.mean(one.loss_inputs["advantages"])
        total = total - np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    return total


def batch() -> list[Datum]:
    """Sequences with all that the three losses read."""
    found = []
    for index, text in enumerate(TEXTS):
        plain = datum(text)
        count = len(plain.tokens)
        drift = np.linspace(-4.0, -1.0, count).astype(np.float32)
        more = {
            "ref_logprobs": drift,
            "logprobs": drift,
            "advantages": np.full(count, 1.0 if index % 2 else -1.0, np.float32),
        }
        found.append(attrs.evolve(plain, loss_inputs={**plain.loss_inputs, **more}))
    return found


async def after_a_step(
    made, folder: Path, loss, capabilities: frozenset[str] | None
) -> tuple[float, list[float]]:
    client = await made.prepare(MODEL, folder, 0)
    try:
        chosen = client.capabilities if capabilities is None else capabilities
        result = await forward_backward(client, chosen, batch(), loss)
        await client.optim_step(ADAM)
        return result.loss, await logprobs(client)
    finally:
        await made.teardown(client)


@pytest.mark.parametrize("loss", [focal, dpo, gspo], ids=lambda loss: loss.__name__)
def test_a_loss_in_numpy_gives_the_same_weights_everywhere(local_server, tmp_path: Path, loss):
    def local():
        return Registry().build("backend", "local")

    one_pass = asyncio.run(after_a_step(local(), tmp_path, loss, None))
    two_passes = asyncio.run(after_a_step(local(), tmp_path, loss, frozenset()))
    over = asyncio.run(after_a_step(backend(local_server.base_url), tmp_path, loss, None))
    unchanged = asyncio.run(after_a_step(local(), tmp_path, lambda _, values: 0.0 * np.sum(values[0]), None))
    assert over == two_passes
    assert over[0] == pytest.approx(one_pass[0], rel=1e-6)
    np.testing.assert_allclose(over[1], one_pass[1], atol=1e-5)
    assert np.max(np.abs(np.array(over[1]) - unchanged[1])) > 1e-3
