"""The contract of the training client that a backend prepares: logprobs, losses, gradients and steps, in the order
of the calls.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import attrs
import numpy as np
import pytest

from evsys.types import AdamParams, LoraSpec, ModelSpec
from evsys_conformance import oracles, toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_close, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import run
from evsys_conformance.trial import CLOSE, Trial

__all__ = ["TrainingClientConformance"]

MOST_GROWTH = 8 * 1024
"""Bytes that a step may leave behind, for logs and counters: less than any batch, gradient or copy of weights."""


class TrainingClientConformance(PluginConformance):
    """The checks of a backend that concern its training client."""

    @check()
    def test_tokens_of_the_renderer_are_those_of_the_tokenizer(self, trial: Trial) -> None:
        """The client's renderer and tokenizer are of one model: no id is outside the vocabulary, and text comes back."""

        async def look() -> tuple[list[int], int, str]:
            async with trial.client() as client:
                prompt = await trial.prompt(client)
                return prompt, client.tokenizer.vocab_size, client.tokenizer.decode(prompt)

        prompt, size, text = run(look())
        require(
            max(prompt) < size,
            "a rendered token is outside the vocabulary",
            seen=max(prompt),
            wanted=f"< {size}",
        )
        require(
            "mail" in text, "decoded, a prompt doesn't hold what was said", seen=text, wanted="... mail ..."
        )

    @check()
    def test_forward_gives_a_logprob_for_each_target(self, trial: Trial) -> None:
        """Logprobs have the shape of the targets, are finite for trained tokens, and at most 0."""

        async def forward() -> tuple[list[Any], Any]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                return data, await client.forward(data)

        data, result = run(forward())
        require_equal(
            len(result.logprobs), len(data), "the number of arrays of logprobs isn't that of the data"
        )
        for datum, logprobs in zip(data, result.logprobs, strict=True):
            targets = datum.loss_inputs["target_tokens"]
            require_equal(np.shape(logprobs), targets.shape, "logprobs don't have the shape of their targets")
            trained = np.asarray(logprobs)[datum.loss_inputs["weights"] != 0]
            require(
                np.all(np.isfinite(trained) & (trained <= 1e-6)),
                "what `forward` gives are not logprobs",
                seen=trained,
                wanted="finite numbers, none above 0",
            )

    @check()
    def test_loss_falls_on_the_toy_task(self, trial: Trial) -> None:
        """Ten steps on four rows at least halve the loss."""

        async def train() -> list[float]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                return [(await trial.step(client, data))[0].loss for _ in range(11)]

        losses = run(train())
        require(
            losses[-1] < 0.5 * losses[0],
            "ten steps on four rows don't halve the loss",
            seen=[round(loss, 4) for loss in losses],
            wanted="at most half of the first; another rate: conformance = {'learning_rate': 0.1}",
        )

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
            require_close(
                said, wanted, f"the loss {name} isn't what its formula gives: a sum over tokens", **CLOSE
            )

    @check()
    def test_loss_params_are_those_of_the_call(self, trial: Trial, loaded: Any) -> None:
        """Other `loss_params` give another loss or another gradient."""

        async def tried(name: str, params: dict[str, float]) -> tuple[float, float | None]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                before = await client.forward(data)
                data = toy.with_policy_inputs(data, before.logprobs)
                forward, optim = await trial.step(client, data, name, params)
                return forward.loss, optim.grad_norm

        for name in _losses(loaded):
            if not oracles.PARAMS[name]:
                continue
            usual = dict(oracles.PARAMS[name])
            others = {key: value / 100 if key != "beta" else value * 100 for key, value in usual.items()}
            one, other = run(tried(name, usual)), run(tried(name, others))
            require(
                not np.allclose(np.asarray(one, dtype=float), np.asarray(other, dtype=float), rtol=1e-4),
                f"loss_params make no difference to the loss {name}",
                seen={"loss_params": others, "loss and gradient norm": other},
                wanted=f"another loss or gradient than with {usual}",
            )

    @check()
    def test_bad_input_fails(self, trial: Trial) -> None:
        """An unknown loss, a token outside the vocabulary and targets of another length fail the call that brings them."""

        async def tried(bad: str) -> bool:
            async with trial.client() as client:
                (datum, *_) = toy.datums(client.renderer)
                loss, inputs = "cross_entropy", dict(datum.loss_inputs)
                tokens = datum.tokens
                match bad:
                    case "a loss that isn't there":
                        loss = "no_such_loss"
                    case "a token outside the vocabulary":
                        tokens = tokens.copy()
                        tokens[-1] = 2**31 - 1
                    case _:
                        inputs["target_tokens"] = inputs["target_tokens"][:-2]
                try:
                    await client.forward_backward(
                        [attrs.evolve(datum, tokens=tokens, loss_inputs=inputs)], loss
                    )
                except Exception:  # in its own words
                    return True
                return False

        for bad in ("a loss that isn't there", "a token outside the vocabulary", "two targets too few"):
            require(
                run(tried(bad)),
                f"forward_backward takes {bad} without an error",
                wanted="an exception when the call is made or awaited",
            )

    @check()
    def test_memory_does_not_grow_with_the_steps(self, trial: Trial) -> None:
        """Closed steps and snapshots leave nothing behind."""

        async def grown() -> float:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                prompt = await trial.prompt(client)

                async def rounds(count: int) -> int:
                    for _ in range(count):
                        await trial.step(client, data)
                        snapshot = await client.sampling_client()
                        await snapshot.compute_logprobs(prompt)
                        await snapshot.close()
                    gc.collect()
                    return tracemalloc.get_traced_memory()[0]

                tracemalloc.start()
                try:
                    await rounds(4)
                    before = await rounds(4)
                    return (await rounds(12) - before) / 12
                finally:
                    tracemalloc.stop()

        growth = run(grown())
        require(
            growth < MOST_GROWTH,
            "each step and closed snapshot leaves memory behind",
            seen=Words(f"{growth / 1024:.0f} KiB a step"),
            wanted=f"less than {MOST_GROWTH / 1024:.0f} KiB a step",
        )

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
                wrong = f"the gradient norm of {name} isn't that of the same loss given as a callable"
                require_close(norm, own_norm, wrong, rtol=5e-3, atol=0.0)
            for a, b in zip(built_in, callable_, strict=True):
                wrong = (
                    f"a step on {name} isn't that on the same loss given as a callable: logprobs afterwards"
                )
                require_close(a, b, wrong, rtol=2e-2, atol=2e-2)

    @check()
    def test_gradients_add_up(self, trial: Trial) -> None:
        """Two halves of a batch before one optimiser step are the whole batch."""

        async def norm(*, halves: bool) -> float:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                for part in (data[:2], data[2:]) if halves else (data,):
                    await client.forward_backward(part, "cross_entropy")
                return _norm(await client.optim_step(AdamParams(learning_rate=0.0)))

        wrong = "the gradient norm of two halves of a batch isn't that of the whole batch"
        require_close(run(norm(halves=True)), run(norm(halves=False)), wrong, rtol=5e-3, atol=0.0)

    @check()
    def test_a_step_clears_the_gradient(self, trial: Trial) -> None:
        """After an optimiser step the next gradient begins again."""

        async def norms() -> list[float]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                return [_norm((await trial.step(client, data, learning_rate=0.0))[1]) for _ in range(2)]

        first, second = run(norms())
        wrong = "the same batch has another gradient norm after an optimiser step at learning rate 0"
        require_close(second, first, wrong, rtol=5e-3, atol=0.0)

    @check()
    def test_learning_rate_is_that_of_the_step(self, trial: Trial) -> None:
        """At learning rate 0 the weights stay what they are."""

        async def around() -> tuple[list[Any], list[Any]]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                before = await client.forward(data)
                await trial.step(client, data, learning_rate=0.0)
                return list(before.logprobs), list((await client.forward(data)).logprobs)

        for before, after in zip(*run(around()), strict=True):
            wrong = "after a step at learning rate 0 logprobs are others: AdamParams of the step are not kept"
            require_close(after, before, wrong, rtol=1e-4, atol=1e-4)

    @check()
    def test_forward_leaves_the_gradient(self, trial: Trial) -> None:
        """A forward pass between gradient and optimiser step leaves the gradient as it is."""

        async def norm(*, between: bool) -> float:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                await client.forward_backward(data, "cross_entropy")
                if between:
                    await client.forward(data[:1])
                return _norm(await client.optim_step(AdamParams(learning_rate=0.0)))

        wrong = "the gradient norm is another when `forward` is called before `optim_step`"
        require_close(run(norm(between=True)), run(norm(between=False)), wrong, rtol=5e-3, atol=0.0)

    @check()
    def test_calls_are_done_in_their_order(self, trial: Trial) -> None:
        """Calls are submitted at once and run in call order, in any order of awaiting."""

        async def pipelined() -> tuple[float, int]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                adam = AdamParams(learning_rate=trial.learning_rate)
                submitted = [
                    client.forward_backward(data, "cross_entropy"),
                    client.optim_step(adam),
                    client.forward_backward(data, "cross_entropy"),
                    client.optim_step(adam),
                ]
                snapshot = await client.sampling_client()
                version = snapshot.version
                await snapshot.close()
                second = await submitted[2]
                for one in (submitted[0], submitted[1], submitted[3]):
                    await one
                return second.loss, version

        async def one_by_one() -> float:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                await trial.step(client, data)
                loss: float = (await client.forward_backward(data, "cross_entropy")).loss
                return loss

        try:
            second, version = run(pipelined())
        except Exception as exc:
            breach(
                f"two steps are submitted and the second batch is awaited first, and that fails: {exc!r}",
                wanted="plain `def` methods that submit at once and run in call order; what they return is awaited later",
            )
        wrong = "two steps are submitted and the second batch is awaited first; its loss isn't that after the first step"
        require_close(second, run(one_by_one()), wrong, rtol=2e-2, atol=2e-2)
        require_equal(
            version, 2, "a snapshot doesn't come after the steps that were submitted before it: its version"
        )

    @check(needs="resume")
    def test_saved_state_is_json(self, trial: Trial) -> None:
        """`save_state` returns a JSON mapping, which the record keeps."""

        async def save() -> Any:
            async with trial.client() as client:
                await trial.step(client, toy.datums(client.renderer))
                folder = trial.folder / "state"
                folder.mkdir()
                return await client.save_state(folder)

        state = run(save())
        try:
            same = json.loads(json.dumps(dict(state))) == dict(state)
        except (TypeError, ValueError) as exc:
            breach(
                f"what `save_state` gives can't be written as JSON: {exc}",
                seen=state,
                wanted="{'file': 'name'}",
            )
        require(same, "what `save_state` gives comes back from JSON as something else", seen=state)

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
            require_close(
                again, on, "a step after restoring isn't the step that would have come: logprobs", **CLOSE
            )

    @check(needs="averaged_weights")
    def test_averages_its_weights(self, trial: Trial) -> None:
        """The running mean begins as the weights are, moves by the given rate, and leaves the weights and snapshots
        alone.
        """

        async def look() -> dict[str, list[Any]]:
            found = {}
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                tokens = await trial.prompt(client)

                async def seen(name: str, snapshot: Any) -> None:
                    found[name] = [*(await snapshot.compute_logprobs(tokens))[1:]]
                    await snapshot.close()

                first = await client.averaged_sampling_client(0.5)
                await seen("weights at the first call", await client.sampling_client())
                for _ in range(2):
                    await trial.step(client, data)
                await seen("weights after two steps", await client.sampling_client())
                await seen("mean that moved by nothing", await client.averaged_sampling_client(0.0))
                await seen("mean that moved all the way", await client.averaged_sampling_client(1.0))
                await seen("weights after that", await client.sampling_client())
                await seen("mean at the first call", first)
            return found

        found = run(look())
        for mean, weights in (
            ("mean at the first call", "weights at the first call"),
            ("mean that moved by nothing", "weights at the first call"),
            ("mean that moved all the way", "weights after two steps"),
            ("weights after that", "weights after two steps"),
        ):
            wrong = f"the logprobs of the {mean} aren't those of the {weights}"
            require_close(found[mean], found[weights], wrong, **CLOSE)

    @check(needs="averaged_weights")
    def test_restores_the_average(self, trial: Trial) -> None:
        """The running mean is saved and restored with the optimiser: it continues from where it was."""

        async def both() -> tuple[Any, Any]:
            async def mean(client: Any) -> Any:
                snapshot = await client.averaged_sampling_client(0.0)
                logprobs = (await snapshot.compute_logprobs(tokens))[1:]
                await snapshot.close()
                return logprobs

            async with trial.client(seed=1) as client:
                data = toy.datums(client.renderer)
                tokens = await trial.prompt(client)
                await (await client.averaged_sampling_client(0.5)).close()
                for _ in range(2):
                    await trial.step(client, data)
                saved = await trial.save(client, 2)
                on = await mean(client)
            async with trial.client(seed=1, restore=saved) as client:
                return on, await mean(client)

        on, again = run(both())
        require_close(again, on, "a restored running mean isn't the one that was saved: logprobs", **CLOSE)

    @check(needs="full_finetune")
    def test_trains_all_weights(self, trial: Trial) -> None:
        """With rank None it trains the model itself, and the loss falls."""

        async def train(rank: int | None) -> tuple[list[float], list[float | None]]:
            spec = ModelSpec(name=trial.model.name, lora=LoraSpec(rank=rank))
            async with trial.client(model=spec) as client:
                data = toy.datums(client.renderer)
                rate = trial.learning_rate / 10
                steps = [await trial.step(client, data, learning_rate=rate) for _ in range(3)]
                return [forward.loss for forward, _ in steps], [optim.grad_norm for _, optim in steps]

        try:
            losses, norms = run(train(None))
        except Exception as exc:
            breach(
                f"it declares full_finetune, and can't train with rank None: {describe_error(exc)}",
                wanted="ModelSpec(lora=LoraSpec(rank=None)) trains all weights",
            )
        require(losses[-1] < losses[0], "trained whole, the loss doesn't fall", seen=losses)
        for rank in (4, 8, 16, 32):
            require(
                norms[0] is None or norms != run(train(rank))[1],
                f"it declares full_finetune, and with rank None it trains an adapter of rank {rank}",
                seen=norms,
                wanted="other gradient norms: those of all weights",
            )


def _losses(loaded: Any) -> list[str]:
    """The built-in losses that a backend declares; cross entropy is asked of all."""
    declared = loaded.capabilities
    return [
        name
        for name in oracles.ORACLES
        if "loss_fns" in declared or f"loss_fns:{name}" in declared or name == "cross_entropy"
    ]


def _norm(result: Any) -> float:
    norm: float | None = result.grad_norm
    return pytest.skip("doesn't report the gradient's norm") if norm is None else norm
