"""The contract of a backend: it prepares, releases, keeps runs apart, and does what it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys.types import Checkpoint, LoraSpec, ModelSpec
from evsys_conformance import toy
from evsys_conformance.checks.model_options import ModelOptionsConformance
from evsys_conformance.checks.optimizer import OptimizerConformance
from evsys_conformance.checks.sampling_client import SamplingClientConformance
from evsys_conformance.checks.training_client import TrainingClientConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_close
from evsys_conformance.places import describe_error
from evsys_conformance.running import run
from evsys_conformance.trial import Trial

__all__ = ["BackendConformance"]

_KNOWN = {
    *("averaged_weights", "concurrent_runs", "custom_loss", "deterministic", "full_finetune", "loss_fns"),
    *("prompt_logprobs", "top_prompt_logprobs", "resume", "top_logprobs"),
}


class BackendConformance(
    TrainingClientConformance, SamplingClientConformance, OptimizerConformance, ModelOptionsConformance
):
    """Checks of the kind `backend`. Override `model` for one that it has, `learning_rate` for one that suits it."""

    kind: ClassVar[str | None] = "backend"
    words: ClassVar[Mapping[str, str]] = {
        "model": "a small model that it has; by default `evsys/tiny`",
        "learning_rate": "a rate at which ten steps halve the loss of four rows; by default 0.01",
    }

    @pytest.fixture
    def model(self, facts: Mapping[str, Any]) -> ModelSpec:
        """A small model that it has."""
        return ModelSpec(name=facts.get("model", "evsys/tiny"), lora=LoraSpec(rank=4, alpha=32.0))

    @pytest.fixture
    def learning_rate(self, facts: Mapping[str, Any]) -> float:
        """A rate at which ten steps halve the loss of four rows."""
        return float(facts.get("learning_rate", 0.01))

    @pytest.fixture
    def trial(self, make: Callable[[], Any], model: ModelSpec, tmp_path: Path, learning_rate: float) -> Trial:
        """How it is tried."""
        return Trial(make, model, tmp_path, learning_rate)

    @check(calls=False)
    def test_capabilities_are_known_words(self, loaded: Any) -> None:
        """`capabilities` and `honours` are frozensets of class level, and every capability is one that there is."""
        for name in ("capabilities", "honours"):
            declared: Any = getattr(loaded, name, frozenset())
            require(
                isinstance(declared, frozenset | set) and all(isinstance(one, str) for one in declared),
                f"its class attribute `{name}` is not a set of words",
                seen=declared,
                wanted=f"{name}: frozenset[str] = frozenset({{...}})",
            )
        unknown = {one for one in loaded.capabilities if one.partition(":")[0] not in _KNOWN}
        require(
            not unknown,
            "it declares capabilities that there aren't",
            seen=Words(", ".join(sorted(unknown))),
            wanted=f"any of {', '.join(sorted(_KNOWN))} (loss_fns:NAME for single losses)",
        )

    @check()
    def test_tears_down_after_a_failed_prepare(self, trial: Trial) -> None:
        """A checkpoint that isn't there fails `prepare`, and `teardown(None)` then releases without an error."""

        async def fail() -> tuple[bool, Exception | None]:
            backend = trial.make()
            nowhere = Checkpoint(step=3, directory=trial.folder / "nowhere", state={"file": "nowhere"})
            try:
                client = await backend.prepare(trial.model, trial.folder, 0, nowhere)
            except Exception:  # it may fail in its own words
                try:
                    await backend.teardown(None)
                except Exception as exc:
                    return True, exc
                return True, None
            await backend.teardown(client)
            return False, None

        failed, exc = run(fail())
        require(failed, "it prepared from a checkpoint that isn't there", wanted="an exception")
        if exc is not None:
            breach(
                f"after a failed prepare, teardown(None) fails: {describe_error(exc)}",
                wanted="it releases what there is, and returns: `client` is None then",
            )

    @check(needs="concurrent_runs")
    def test_two_at_once_share_nothing(self, trial: Trial) -> None:
        """Two concurrent runs don't see each other's training."""

        async def beside() -> tuple[list[Any], list[Any]]:
            async with trial.client() as one, trial.client() as other:
                data = toy.datums(other.renderer)
                before = await other.forward(data)
                for _ in range(2):
                    await trial.step(one, data)
                after = await other.forward(data)
                return list(before.logprobs), list(after.logprobs)

        for before, after in zip(*run(beside()), strict=True):
            wrong = "after two steps of a concurrent run, the logprobs of this one are others"
            require_close(after, before, wrong, rtol=1e-5, atol=1e-5)
