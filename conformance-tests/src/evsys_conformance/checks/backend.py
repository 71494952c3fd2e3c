"""What a backend keeps: it trains, saves, restores and samples, and does what it declares."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from evsys.types import AdamParams, Checkpoint, LoraSpec, ModelSpec, SamplingParams
from evsys_conformance import oracles, toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.running import run

__all__ = ["BackendConformance"]

_KNOWN = {
    *("concurrent_runs", "custom_loss", "deterministic", "full_finetune", "loss_fns"),
    *("prompt_logprobs", "top_prompt_logprobs", "resume", "top_logprobs"),
}
_CLOSE: Any = {"rtol": 2e-3, "atol": 2e-3}


@dataclass(frozen=True)
class Trial:
    """How the backend is tried: which model, from which folder, at which rate."""

    make: Callable[[], Any]
    model: ModelSpec
    folder: Path
    learning_rate: float

    @asynccontextmanager
    async def client(
        self, *, seed: int = 0, restore: Checkpoint | None = None, model: ModelSpec | None = None
    ) -> AsyncIterator[Any]:
        """A prepared client of a backend of its own, released afterwards."""
        backend = self.make()
        client = await backend.prepare(model or self.model, self.folder, seed, restore)
        try:
            yield client
        finally:
            await backend.teardown(client)

    async def step(
        self, client: Any, data: list[Any], loss: Any = "cross_entropy", params: Any = None
    ) -> Any:
        """One step; what `forward_backward` and `optim_step` gave."""
        forward = client.forward_backward(data, loss, params)
        optim = client.optim_step(AdamParams(learning_rate=self.learning_rate))
        return await forward, await optim

    async def save(self, client: Any, step: int) -> Checkpoint:
        """Save its state in a new folder."""
        folder = self.folder / f"checkpoint-{step}"
        folder.mkdir()
        return Checkpoint(step=step, directory=folder, state=dict(await client.save_state(folder)))


class BackendConformance(PluginConformance):
    """Checks of the kind `backend`. Override `model` for one that it has, `learning_rate` for one that suits it."""

    kind: ClassVar[str | None] = "backend"

    @pytest.fixture
    def model(self, facts: Mapping[str, Any]) -> ModelSpec:
        """A small model."""
        return ModelSpec(name=facts.get("model", "evsys/tiny"), lora=LoraSpec(rank=4, alpha=32.0))

    @pytest.fixture
    def learning_rate(self, facts: Mapping[str, Any]) -> float:
        """A rate at which the toy task is learnt in ten steps."""
        return float(facts.get("learning_rate", 0.01))

    @pytest.fixture
    def trial(self, make: Callable[[], Any], model: ModelSpec, tmp_path: Path, learning_rate: float) -> Trial:
        """How it is tried."""
        return Trial(make, model, tmp_path, learning_rate)

    @check()
    def test_capabilities_are_known_words(self, loaded: Any) -> None:
        """`capabilities` and `honours` are frozensets of class level, and every capability is one that there is."""
        for name in ("capabilities", "honours"):
            declared: Any = getattr(loaded, name, frozenset())
            assert isinstance(declared, frozenset), f"{name} is a frozenset"
        unknown = {one for one in loaded.capabilities if one.partition(":")[0] not in _KNOWN}
        assert unknown == set()

    @check()
    def test_forward_gives_a_logprob_for_each_target(self, trial: Trial) -> None:
        """Logprobs have the shape of the targets, are finite where trained, and are no more than 0."""

        async def forward() -> tuple[list[Any], Any]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                return data, await client.forward(data)

        data, result = run(forward())
        for datum, logprobs in zip(data, result.logprobs, strict=True):
            trained = np.asarray(logprobs)[datum.loss_inputs["weights"] != 0]
            assert np.shape(logprobs) == datum.loss_inputs["target_tokens"].shape
            assert np.all(np.isfinite(trained) & (trained <= 1e-6))

    @check()
    def test_loss_falls_on_the_toy_task(self, trial: Trial) -> None:
        """Ten steps on four rows at least halve the loss."""

        async def train() -> list[float]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                return [(await trial.step(client, data))[0].loss for _ in range(11)]

        losses = run(train())
        assert losses[-1] < 0.5 * losses[0], f"losses: {losses}"

    @check()
    def test_loss_is_that_of_the_formula(self, trial: Trial, loaded: Any) -> None:
        """The loss of each built-in that it declares is what the formula gives for its own logprobs."""

        async def losses() -> dict[str, tuple[float, float]]:
            found = {}
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                before = await client.forward(data)
                data = toy.with_policy_inputs(data, before.logprobs)
                for name in _losses(loaded):
                    forward, _ = await trial.step(client, data, name, oracles.PARAMS[name])
                    wanted = oracles.ORACLES[name](data, forward.logprobs).loss
                    found[name] = (forward.loss, wanted)
            return found

        for name, (said, wanted) in run(losses()).items():
            np.testing.assert_allclose(said, wanted, **_CLOSE, err_msg=name)

    @check(needs="custom_loss")
    def test_gradient_of_a_built_in_is_that_of_the_callable(self, trial: Trial, loaded: Any) -> None:
        """A built-in loss and the same loss as a callable give the same gradient norm and the same step."""

        async def step(loss: Any, name: str) -> tuple[float | None, list[Any]]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                before = await client.forward(data)
                data = toy.with_policy_inputs(data, before.logprobs)
                params = oracles.PARAMS[name] if isinstance(loss, str) else None
                _, optim = await trial.step(client, data, loss, params)
                after = await client.forward(data)
                return optim.grad_norm, list(after.logprobs)

        for name in _losses(loaded):
            norm, built_in = run(step(name, name))
            own_norm, callable_ = run(step(oracles.ORACLES[name], name))
            if norm is not None and own_norm is not None:
                np.testing.assert_allclose(norm, own_norm, rtol=5e-3, err_msg=name)
            for a, b in zip(built_in, callable_, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2, err_msg=name)

    @check()
    def test_gradients_add_up(self, trial: Trial) -> None:
        """Two halves of a batch before one optimiser step are the whole batch."""

        async def norm(*, halves: bool) -> float | None:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                for part in (data[:2], data[2:]) if halves else (data,):
                    await client.forward_backward(part, "cross_entropy")
                found: float | None = (await client.optim_step(AdamParams(learning_rate=0.0))).grad_norm
                return found

        whole = run(norm(halves=False))
        if whole is None:
            pytest.skip("doesn't tell the gradient's norm")
        halves = run(norm(halves=True))
        assert halves is not None
        np.testing.assert_allclose(halves, whole, rtol=5e-3)

    @check(needs="resume")
    def test_restores_what_it_saved(self, trial: Trial) -> None:
        """From a checkpoint the next step is the one that would have come: weights and optimiser are back."""

        async def both() -> tuple[list[Any], list[Any]]:
            async with trial.client(seed=1) as client:
                data = toy.datums(client.renderer)
                for _ in range(3):
                    await trial.step(client, data)
                saved = await trial.save(client, 3)
                await trial.step(client, data)
                on = await client.forward(data)
            async with trial.client(seed=1, restore=saved) as client:
                await trial.step(client, data)
                again = await client.forward(data)
            return list(on.logprobs), list(again.logprobs)

        for on, again in zip(*run(both()), strict=True):
            np.testing.assert_allclose(again, on, **_CLOSE)

    @check()
    def test_tears_down_after_a_failed_prepare(self, trial: Trial) -> None:
        """A checkpoint that isn't there fails `prepare`, and `teardown(None)` then releases without an error."""

        async def fail() -> bool:
            backend = trial.make()
            nowhere = Checkpoint(step=3, directory=trial.folder / "nowhere", state={"file": "nowhere"})
            failed = True
            with contextlib.suppress(Exception):
                await backend.prepare(trial.model, trial.folder, 0, nowhere)
                failed = False
            await backend.teardown(None)
            return failed

        assert run(fail()), "it prepared from a checkpoint that isn't there"

    @check(needs="concurrent_runs")
    def test_two_at_once_share_nothing(self, trial: Trial) -> None:
        """What one run trains, another beside it doesn't see."""

        async def beside() -> tuple[list[Any], list[Any]]:
            async with trial.client() as one, trial.client() as other:
                data = toy.datums(other.renderer)
                before = await other.forward(data)
                for _ in range(2):
                    await trial.step(one, data)
                after = await other.forward(data)
                return list(before.logprobs), list(after.logprobs)

        for before, after in zip(*run(beside()), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)

    @check()
    def test_sampled_logprobs_are_those_recomputed(self, trial: Trial) -> None:
        """The logprob that comes with each sampled token is the model's own for that token there."""
        sampled, again = run(_sampled(trial))
        np.testing.assert_allclose(sampled, again, **_CLOSE)

    @check()
    def test_a_snapshot_is_frozen(self, trial: Trial) -> None:
        """A sampling client keeps the weights of its step, and its version says which; one made later has others."""

        async def around() -> tuple[Any, Any, Any, int]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                tokens = data[0].tokens.tolist()
                early = await client.sampling_client()
                before = await early.compute_logprobs(tokens)
                for _ in range(3):
                    await trial.step(client, data)
                late = await client.sampling_client()
                found = (before, await early.compute_logprobs(tokens), await late.compute_logprobs(tokens))
                versions = late.version - early.version
                await early.close()
                await late.close()
                await late.close()
                return *found, versions

        before, still, trained, versions = run(around())
        np.testing.assert_allclose(still[1:], before[1:], rtol=1e-5, atol=1e-5)
        assert not np.allclose(trained[1:], before[1:], rtol=1e-3, atol=1e-3), (
            "the later snapshot is untrained"
        )
        assert versions == 3, "versions count optimiser steps"

    @check(needs="prompt_logprobs")
    def test_prompt_logprobs_are_those_computed(self, trial: Trial) -> None:
        """On request a sample brings its prompt's logprobs, nothing for the first token."""

        async def ask() -> tuple[Any, Any]:
            async with trial.client() as client:
                prompt = toy.datums(client.renderer)[0].tokens.tolist()
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=2, seed=1, prompt_logprobs=True)
                result = await sampler.sample(prompt, params)
                return result.prompt_logprobs, await sampler.compute_logprobs(prompt)

        said, computed = run(ask())
        assert said is not None, "none came"
        assert said[0] is None
        np.testing.assert_allclose(said[1:], computed[1:], **_CLOSE)

    @check(needs="top_logprobs")
    def test_top_logprobs_hold_the_likeliest(self, trial: Trial) -> None:
        """On request each sampled position brings its k likeliest tokens; a greedy sample took the first of them."""

        async def ask() -> Any:
            async with trial.client() as client:
                prompt = toy.datums(client.renderer)[0].tokens.tolist()
                sampler = await client.sampling_client()
                return await sampler.sample(
                    prompt, SamplingParams(max_tokens=3, temperature=0.0, top_logprobs=3)
                )

        (sequence,) = run(ask()).sequences
        assert sequence.top_logprobs is not None, "none came"
        for token, logprob, top in zip(
            sequence.tokens, sequence.logprobs, sequence.top_logprobs, strict=True
        ):
            assert len(top) == 3
            assert max(top, key=lambda one: top[one]) == token
            np.testing.assert_allclose(top[token], logprob, **_CLOSE)

    @check(needs="deterministic")
    def test_same_seed_gives_the_same_bits(self, trial: Trial) -> None:
        """Two runs with one seed draw the same tokens and end with the same logprobs, bit by bit."""

        async def once() -> tuple[list[list[int]], list[bytes]]:
            async with trial.client(seed=5) as client:
                data = toy.datums(client.renderer)
                await trial.step(client, data)
                sampler = await client.sampling_client()
                drawn = await sampler.sample(data[0].tokens.tolist(), SamplingParams(max_tokens=6, seed=2), 2)
                after = await client.forward(data)
                tokens = [list(sequence.tokens) for sequence in drawn.sequences]
                return tokens, [np.asarray(one).tobytes() for one in after.logprobs]

        assert run(once()) == run(once())

    @check(needs="full_finetune")
    def test_trains_all_weights(self, trial: Trial) -> None:
        """With rank None it trains the model itself, and the loss falls."""

        async def train() -> list[float]:
            whole = ModelSpec(name=trial.model.name, lora=LoraSpec(rank=None))
            async with trial.client(model=whole) as client:
                data = toy.datums(client.renderer)
                slower = Trial(trial.make, whole, trial.folder, trial.learning_rate / 10)
                return [(await slower.step(client, data))[0].loss for _ in range(3)]

        losses = run(train())
        assert losses[-1] < losses[0]


def _losses(loaded: Any) -> list[str]:
    """The built-in losses that a backend declares; cross entropy is asked of all."""
    declared = loaded.capabilities
    return [
        name
        for name in oracles.ORACLES
        if "loss_fns" in declared or f"loss_fns:{name}" in declared or name == "cross_entropy"
    ]


async def _sampled(trial: Trial) -> tuple[list[float], list[float]]:
    sampled: list[float] = []
    again: list[float] = []
    async with trial.client() as client:
        prompt = toy.datums(client.renderer)[0].tokens.tolist()
        sampler = await client.sampling_client()
        for temperature in (1.0, 0.5):
            params = SamplingParams(max_tokens=6, seed=3, temperature=temperature)
            for sequence in (await sampler.sample(prompt, params, 2)).sequences:
                assert len(sequence.tokens) == len(sequence.logprobs)
                computed = await sampler.compute_logprobs([*prompt, *sequence.tokens])
                sampled += sequence.logprobs
                again += [float(value) for value in computed[len(prompt) :]]
    return sampled, again
