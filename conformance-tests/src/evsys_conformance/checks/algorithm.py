"""The contract of an algorithm, tested on the `mock` backend: it trains, counts, stops, resumes and can be
cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from evsys import current_registry
from evsys.errors import PluginNotFoundError
from evsys.optional import SupportsLora, declared
from evsys.types import AdamParams, Checkpoint, ModelSpec, RunResult, StopFlag
from evsys_conformance import runs, toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_equal, short_text
from evsys_conformance.running import cancelled_within, run
from evsys_conformance.subject import Subject

__all__ = ["AlgorithmConformance", "Trained", "mock_backend"]

_STEPS = 6
_SETTINGS: Mapping[str, Any] = {"batch_size": 4, "learning_rate": 0.02, "save_every": 3}


@dataclass(frozen=True)
class Trained:
    """One attempt, looked at from outside. `weights` are logprobs of fixed rows by the trained model, `untrained` those by
    the model from which it started.
    """

    result: RunResult
    batches: list[str]
    steps: int
    recorded: list[int]
    losses: list[float]
    weights: list[Any]
    untrained: list[Any]
    checkpoint: Checkpoint | None


type Train = Callable[..., Trained]


def mock_backend() -> Any:
    """The backend that algorithms are tried on; it comes with an extra of the suite."""
    try:
        return current_registry().build("backend", "mock")
    except PluginNotFoundError:
        breach("this check needs the backend `mock`", wanted="pip install 'evsys-conformance[train]'")


class AlgorithmConformance(PluginConformance):
    """Checks of the kind `algorithm`. Override `params` for its settings, `data` for rows of another task."""

    kind: ClassVar[str | None] = "algorithm"
    words: ClassVar[Mapping[str, str]] = {
        "rows": "rows to train on, with columns as a data file has them; by default a toy task in its shape",
    }

    @pytest.fixture
    def params(self, facts: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
        """Its example, with short training where it has the usual settings for that."""
        example = dict(facts.get("params", {}))
        known = subject.schema.get("properties", {}) if subject.config is not None else {}
        if "epochs" not in example:
            example = {"steps": _STEPS, **example}
        short = {**_SETTINGS, **example}
        return {
            name: value for name, value in short.items() if name in known or name in facts.get("params", {})
        }

    @pytest.fixture
    def data(self, plugin: Any, facts: Mapping[str, Any]) -> Any:
        """Rows to train on, typed or with columns as a data file has them."""
        return facts["rows"] if "rows" in facts else toy.rows(declared(plugin, "shape", "chat"))

    @pytest.fixture
    def dataset(self, plugin: Any, data: Any) -> Any:
        """The rows as a run's dataset, in the shape that it trains on."""
        return toy.as_dataset(data, declared(plugin, "shape", "chat"))

    @pytest.fixture
    def attempt(self, make: Callable[[], Any], subject: Subject, dataset: Any, tmp_path: Path) -> Train:
        """Trains a new object once."""
        count = 0

        def attempt(
            *, seed: int = 0, restored: Checkpoint | None = None, stop_after: int | None = None
        ) -> Trained:
            nonlocal count
            count += 1
            folder = tmp_path / f"run-{count}"
            folder.mkdir()
            one = _Attempt(make(), subject.name, dataset, folder, seed, restored, stop_after)
            return run(one.train())

        return attempt

    @pytest.fixture
    def train(self, attempt: Train) -> Train:
        """Trains a new object once; skips what can't be seen of one that trains on nothing."""

        def train(**settings: Any) -> Trained:
            trained = attempt(**settings)
            if not trained.batches and settings.get("restored") is None:
                pytest.skip("after test_trains_on_the_mock_backend: it trained on nothing")
            return trained

        return train

    @check()
    def test_trains_on_the_mock_backend(self, attempt: Train) -> None:
        """A run completes, and every loss that it records is finite."""
        trained = attempt()
        require(
            isinstance(trained.result, RunResult),
            "what `train` gives is not a result",
            seen=trained.result,
            wanted="evsys.types.RunResult(status='completed', steps=...)",
        )
        require_equal(trained.result.status, "completed", "a run of a few steps didn't complete")
        require(
            trained.batches,
            "it trained on nothing",
            seen=Words("no call of forward_backward"),
            wanted="await ctx.clients.policy.forward_backward(data, loss_fn, loss_params)",
        )
        for loss in trained.losses:
            require(
                math.isfinite(loss),
                "a loss that it recorded isn't finite",
                seen=loss,
                wanted="a finite number",
            )

    @check()
    def test_weights_are_trained(self, train: Train) -> None:
        """After a run the weights are others than before."""
        trained = train()
        require(
            any(not np.array_equal(a, b) for a, b in zip(trained.weights, trained.untrained, strict=True)),
            "after the run the weights are those of before",
            seen=Words(f"{trained.steps} calls of optim_step"),
            wanted="optim_step after each forward_backward, at a learning rate above 0",
        )

    @check()
    def test_steps_are_counted(self, train: Train) -> None:
        """The result's `steps` are the completed optimiser steps, and so are the recorded ones."""
        trained = train()
        require_equal(
            trained.result.steps, trained.steps, "`steps` of its result isn't how often it called optim_step"
        )
        if trained.recorded:
            require_equal(
                trained.recorded,
                list(range(1, trained.steps + 1)),
                "the steps that it recorded with `ctx.record.done` aren't those that it did",
            )

    @check()
    def test_keeps_to_the_number_of_steps(self, train: Train) -> None:
        """It does as many steps as it was asked for: by its params, else by `ctx.max_steps`."""
        require_equal(train().steps, _STEPS, "it did another number of optimiser steps than it was asked for")

    @check()
    def test_stops_on_request(self, train: Train) -> None:
        """After `ctx.request_stop` no more than the step under way is done, and the run ends well."""
        trained = train(stop_after=2)
        require(
            trained.steps <= 3,
            "asked to stop after its second step, it continued",
            seen=Words(f"{trained.steps} steps"),
            wanted="at most 3: look at `ctx.stop_requested` before each step",
        )
        require_equal(trained.result.status, "completed", "a run that was asked to stop didn't complete")

    @check()
    def test_same_seed_same_batches(self, train: Train) -> None:
        """Two runs with one seed train on the same batches and end with the same weights."""
        first, second = train(seed=1), train(seed=1)
        _same_batches(second.batches, first.batches, "two runs with the same seed train on different data")
        _same_weights(
            second, first, "two runs with the same seed and the same batches end with different weights"
        )

    @check()
    def test_other_seed_other_batches(self, train: Train) -> None:
        """The seed of the run decides the order of the data."""
        require(
            train(seed=1).batches != train(seed=2).batches,
            "two runs with different seeds train on the same batches in the same order",
            wanted="an order of the data that comes from ctx.seeds('data')",
        )

    @check()
    def test_resumes_exactly(self, train: Train) -> None:
        """From a checkpoint it continues as if it had never stopped: same batches, same steps, same weights."""
        whole, part = train(seed=1), train(seed=1, stop_after=3)
        if part.steps > 4 or not isinstance(part.result, RunResult):
            pytest.skip("after test_stops_on_request: it doesn't stop")
        if part.batches != whole.batches[: len(part.batches)]:
            pytest.skip("after test_same_seed_same_batches: two runs with one seed differ")
        if part.checkpoint is None:
            breach(
                "it saved no checkpoint when it was stopped",
                wanted="await ctx.checkpoints.save(step, ctx.clients.policy, {...}) before it returns",
            )
        rest = train(seed=1, restored=part.checkpoint)
        _same_batches(
            part.batches + rest.batches,
            whole.batches,
            f"stopped after step {part.steps} and resumed, it trains on other data than a run that wasn't stopped",
        )
        _same_weights(
            rest, whole, "stopped and resumed, it ends with other weights than a run that wasn't stopped"
        )

    @check()
    def test_cancels_within_a_second(
        self, make: Callable[[], Any], subject: Subject, dataset: Any, tmp_path: Path
    ) -> None:
        """Cancelled in the middle of a run, it ends as cancelled."""
        require(
            run(_cancels(make(), subject.name, dataset, tmp_path)),
            "cancelled in the middle of a run, it continued for a second or hid it",
            wanted="CancelledError: `except Exception` lets it through, `except BaseException` and `except:` don't",
        )


def _same_batches(seen: list[str], wanted: list[str], wrong: str) -> None:
    if seen == wanted:
        return
    first = next((i for i, (a, b) in enumerate(zip(seen, wanted, strict=False)) if a != b), None)
    where = Words(f"batch {first} is another" if first is not None else f"{len(seen)} batches")
    breach(wrong, seen=where, wanted=f"the same {len(wanted)} batches in the same order")


def _same_weights(seen: Trained, wanted: Trained, wrong: str) -> None:
    same = all(np.array_equal(a, b) for a, b in zip(seen.weights, wanted.weights, strict=True))
    require(
        same,
        wrong,
        seen=Words(f"logprobs of a row {short_text(np.asarray(seen.weights[0]))}"),
        wanted=f"bit by bit {short_text(np.asarray(wanted.weights[0]))}",
    )


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a run."""

    algorithm: Any
    name: str
    data: Any
    folder: Path
    seed: int
    restored: Checkpoint | None
    stop_after: int | None

    async def train(self) -> Trained:
        """Train and look at what came of it."""
        stop, backend, model = StopFlag(), mock_backend(), _model(self.algorithm)
        inner = await backend.prepare(model, self.folder, runs.seeds_of(self.seed)("model"), self.restored)
        before = await inner.forward(toy.datums(inner.renderer))

        def on_step(n: int) -> None:
            if n == self.stop_after:
                stop.set("the check asks for it")

        client = runs.WatchedClient(inner, on_step)
        try:
            async with _roles(self.algorithm, model, self.folder) as roles:
                ctx = runs.context(
                    self.folder,
                    client,
                    self.data,
                    kind=self.name,
                    seed=self.seed,
                    model=model,
                    max_steps=_STEPS,
                    restored=self.restored,
                    stop=stop,
                    roles=roles,
                )
                result = await self.algorithm.train(ctx)
            after = await inner.forward(toy.datums(inner.renderer))
        finally:
            await backend.teardown(inner)
        record: Any = ctx.record
        return Trained(
            result=result,
            batches=client.batches,
            steps=client.steps,
            recorded=record.steps,
            losses=[values["loss"] for _, values in record.values if "loss" in values],
            weights=list(after.logprobs),
            untrained=list(before.logprobs),
            checkpoint=ctx.checkpoints.latest(),
        )


async def _cancels(algorithm: Any, name: str, data: Any, folder: Path) -> bool:
    backend = mock_backend()
    model = _model(algorithm)
    inner = await backend.prepare(model, folder, 0)
    stepped = asyncio.Event()
    client = runs.WatchedClient(inner, lambda _n: stepped.set())
    try:
        async with _roles(algorithm, model, folder) as roles:
            ctx = runs.context(folder, client, data, kind=name, model=model, max_steps=_STEPS, roles=roles)
            training = asyncio.create_task(algorithm.train(ctx))
            waiting = asyncio.create_task(stepped.wait())
            await asyncio.wait([training, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if training.done():
                training.result()  # what it raises
                pytest.skip("it ended before it could be cancelled")
            return await cancelled_within(training, 1.0)
    finally:
        client.closed = True
        await backend.teardown(inner)


@asynccontextmanager
async def _roles(algorithm: Any, model: ModelSpec, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A client for each role that an algorithm can't do without: a model that has learnt a little of the toy task."""
    async with AsyncExitStack() as stack:
        found: dict[str, Any] = {}
        for name in sorted(declared(algorithm, "required_roles", ())):
            backend, place = mock_backend(), folder / name
            place.mkdir(exist_ok=True)
            client = await backend.prepare(model, place, 1)
            stack.push_async_callback(backend.teardown, client)
            for _ in range(_STEPS):
                await client.forward_backward(toy.datums(client.renderer), "cross_entropy")
                await client.optim_step(AdamParams(learning_rate=0.005))
            found[name] = client
        yield found


def _model(algorithm: Any) -> ModelSpec:
    lora = algorithm.lora() if isinstance(algorithm, SupportsLora) else runs.MODEL.lora
    return ModelSpec(name=runs.MODEL.name, lora=lora)
