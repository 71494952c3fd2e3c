"""What a loss keeps: a finite sum over tokens whose gradient is its own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from evsys.types import Datum, LossResult
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.oracles import ORACLES
from evsys_conformance.subject import Subject

__all__ = ["LossConformance"]

type Logprobs = list[Any]
type Batch = tuple[list[Datum], Logprobs]


class LossConformance(PluginConformance):
    """Checks of the kind `loss`. Override `batches` for data with other loss inputs."""

    kind: ClassVar[str | None] = "loss"

    @pytest.fixture
    def batches(self) -> list[Batch]:
        """Data with every known loss input, and the policy's logprobs: one target a position, and several."""
        return [_batch(()), _batch((3,))]

    @check()
    def test_is_finite(self, plugin: Any, batches: list[Batch]) -> None:
        """It gives a finite number, with gradients of the logprobs' shapes where it brings its own."""
        for data, logprobs in batches:
            said = plugin(data, logprobs)
            assert math.isfinite(_value(said))
            if isinstance(said, LossResult):
                assert [np.shape(grad) for grad in said.grads] == [np.shape(one) for one in logprobs]
                assert all(np.all(np.isfinite(grad)) for grad in said.grads)

    @check()
    def test_is_a_sum(self, plugin: Any, batches: list[Batch]) -> None:
        """The same data twice have twice the loss: algorithms divide, losses don't."""
        for data, logprobs in batches:
            once, twice = _value(plugin(data, logprobs)), _value(plugin([*data] * 2, [*logprobs] * 2))
            np.testing.assert_allclose(twice, 2 * once, rtol=1e-6, atol=1e-9)

    @check()
    def test_inputs_are_left_as_they_were(self, plugin: Any, batches: list[Batch]) -> None:
        """Neither the data nor the logprobs are changed."""
        for data, logprobs in batches:
            before = copy.deepcopy(_arrays(data, logprobs))
            plugin(data, logprobs)
            for one, other in zip(before, _arrays(data, logprobs), strict=True):
                np.testing.assert_array_equal(one, other)

    @check()
    def test_gradient_is_that_of_the_value(
        self, plugin: Any, subject: Subject, batches: list[Batch], facts: dict[str, Any]
    ) -> None:
        """A gradient that it brings agrees with differences of its value, unless it says `stops_gradient`."""
        if _oracle(subject) is not None or facts.get("stops_gradient"):
            pytest.skip("a factor of it may have no gradient")
        for data, logprobs in batches:
            said = plugin(data, logprobs)
            if not isinstance(said, LossResult):
                pytest.skip("evsys differentiates it")
            _compare_with_differences(plugin, data, logprobs, said)

    @check()
    def test_agrees_with_the_formula(self, plugin: Any, subject: Subject, batches: list[Batch]) -> None:
        """A loss with the name of a built-in one is that loss: value and gradient."""
        oracle = _oracle(subject)
        if oracle is None:
            pytest.skip("isn't one of the built-in losses")
        for data, logprobs in batches:
            said, wanted = plugin(data, logprobs), oracle(data, logprobs)
            np.testing.assert_allclose(_value(said), wanted.loss, rtol=1e-6, atol=1e-9)
            if isinstance(said, LossResult):
                for own, other in zip(said.grads, wanted.grads, strict=True):
                    np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-9)


def _oracle(subject: Subject) -> Any:
    return ORACLES.get(subject.name.partition("/")[2])


def _batch(width: tuple[int, ...]) -> Batch:
    rng = np.random.default_rng(11)
    data, logprobs = [], []
    for n in (5, 3):
        shape = (n, *width)
        sampled = -rng.exponential(1.0, shape)
        inputs = {
            "target_tokens": rng.integers(0, 250, shape),
            "weights": rng.choice([0.0, 0.5, 1.0], shape),
            "logprobs": sampled,
            "advantages": rng.choice([-1.0, 0.5, 2.0], shape),
            "ref_logprobs": sampled - 0.1,
        }
        data.append(Datum(tokens=rng.integers(0, 250, n), loss_inputs=inputs, meta={"group": "g"}))
        logprobs.append(sampled + rng.normal(0, 0.25, shape))
    return data, logprobs


def _value(said: Any) -> float:
    if isinstance(said, LossResult):
        return float(said.loss)
    return float(said[0] if isinstance(said, tuple) else said)


def _arrays(data: Sequence[Datum], logprobs: Logprobs) -> list[Any]:
    return [array for datum in data for array in (datum.tokens, *datum.loss_inputs.values())] + logprobs


def _compare_with_differences(
    loss: Callable[..., Any], data: Sequence[Datum], logprobs: Logprobs, said: LossResult
) -> None:
    step = 1e-6
    for which, grad in enumerate(said.grads):
        for place in np.ndindex(np.shape(grad)):
            values = []
            for sign in (1, -1):
                moved = [np.array(one, dtype=np.float64) for one in logprobs]
                moved[which][place] += sign * step
                values.append(_value(loss(data, moved)))
            difference = (values[0] - values[1]) / (2 * step)
            np.testing.assert_allclose(grad[place], difference, rtol=1e-5, atol=1e-6)
