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


class LossConformance(PluginConformance):
    """Checks of the kind `loss`. Override `batch` for data with other loss inputs."""

    kind: ClassVar[str | None] = "loss"

    @pytest.fixture(params=["N", "NK"])
    def batch(self, request: pytest.FixtureRequest) -> tuple[list[Datum], Logprobs]:
        """Data with every known loss input, and the policy's logprobs: one target a position, or several."""
        return _batch(() if request.param == "N" else (3,))

    @check()
    def test_is_finite(self, plugin: Any, batch: tuple[list[Datum], Logprobs]) -> None:
        """It gives a finite number, with gradients of the logprobs' shapes where it brings its own."""
        data, logprobs = batch
        said = plugin(data, logprobs)
        assert math.isfinite(_value(said))
        if isinstance(said, LossResult):
            assert [np.shape(grad) for grad in said.grads] == [np.shape(one) for one in logprobs]
            assert all(np.all(np.isfinite(grad)) for grad in said.grads)

    @check()
    def test_is_a_sum(self, plugin: Any, batch: tuple[list[Datum], Logprobs]) -> None:
        """The same data twice have twice the loss: algorithms divide, losses don't."""
        data, logprobs = batch
        once, twice = _value(plugin(data, logprobs)), _value(plugin([*data, *data], [*logprobs, *logprobs]))
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-6, atol=1e-9)

    @check()
    def test_inputs_are_left_as_they_were(self, plugin: Any, batch: tuple[list[Datum], Logprobs]) -> None:
        """Neither the data nor the logprobs are changed."""
        data, logprobs = batch
        before = copy.deepcopy(([_arrays(datum) for datum in data], logprobs))
        plugin(data, logprobs)
        now = ([_arrays(datum) for datum in data], logprobs)
        for one, other in zip(_flat(before), _flat(now), strict=True):
            np.testing.assert_array_equal(one, other)

    @check()
    def test_gradient_is_that_of_the_value(
        self, plugin: Any, loaded: Any, batch: tuple[list[Datum], Logprobs], facts: dict[str, Any]
    ) -> None:
        """A gradient that it brings agrees with differences of its value, unless it says `stops_gradient`."""
        data, logprobs = batch
        said = plugin(data, logprobs)
        if not isinstance(said, LossResult):
            pytest.skip("evsys differentiates it")
        if facts.get("stops_gradient"):
            pytest.skip("says that a factor of it has no gradient")
        _compare_with_differences(plugin, data, logprobs, said)

    @check()
    def test_agrees_with_the_formula(
        self, plugin: Any, subject: Subject, batch: tuple[list[Datum], Logprobs]
    ) -> None:
        """A loss with the name of a built-in one is that loss: value and gradient."""
        oracle = ORACLES.get(subject.name.partition("/")[2])
        if oracle is None:
            pytest.skip("isn't one of the built-in losses")
        data, logprobs = batch
        said, wanted = plugin(data, logprobs), oracle(data, logprobs)
        np.testing.assert_allclose(_value(said), wanted.loss, rtol=1e-6, atol=1e-9)
        if isinstance(said, LossResult):
            for own, other in zip(said.grads, wanted.grads, strict=True):
                np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-9)


def _batch(width: tuple[int, ...]) -> tuple[list[Datum], Logprobs]:
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


def _arrays(datum: Datum) -> list[Any]:
    return [datum.tokens, *datum.loss_inputs.values()]


def _flat(batch: tuple[list[list[Any]], Logprobs]) -> list[Any]:
    return [array for arrays in (*batch[0], batch[1]) for array in arrays]


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
