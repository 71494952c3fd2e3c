"""The contract of a loss: a finite sum over tokens whose gradient is its own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from evsys.types import Datum, LossResult
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import as_number, breach, require, require_close, require_equal, short_text
from evsys_conformance.oracles import ORACLES
from evsys_conformance.subject import Subject

__all__ = ["LossConformance"]

type Logprobs = list[Any]
type Batch = tuple[list[Datum], Logprobs]

_GIVES = "a finite number, (number, metrics), or evsys.types.LossResult(loss, grads, metrics)"
_HOLDS = "a method (data, logprobs, held) that gives its value with the factors without a gradient computed at `held`"
_EXACT: Any = {"rtol": 1e-6, "atol": 1e-9}
_NEAR: Any = {"rtol": 1e-5, "atol": 1e-6}


class LossConformance(PluginConformance):
    """Checks of the kind `loss`. Override `batches` for data with other loss inputs."""

    kind: ClassVar[str | None] = "loss"
    words: ClassVar[Mapping[str, str]] = {
        "stops_gradient": "true when a factor of it has no gradient and depends on the policy's logprobs only by their distance "
        "to the sampler's or the reference's; otherwise, the name of its method `(data, logprobs, held)`, which gives its value "
        "with the factors that have no gradient computed at `held`"
    }

    @pytest.fixture
    def batches(self) -> list[Batch]:
        """Data with every known loss input, and the policy's logprobs: one target a position, and several."""
        return [_batch(()), _batch((3,))]

    @pytest.fixture
    def loss(self, plugin: Any) -> Callable[..., Any]:
        """It, given arrays of its own: whether it changes them is the question of one check alone."""
        return lambda data, logprobs: plugin(*_copied(data, logprobs))

    @check()
    def test_is_finite(self, plugin: Any, batches: list[Batch]) -> None:
        """It gives a finite number, with gradients of the logprobs' shapes where it brings its own."""
        for data, logprobs in batches:
            said = plugin(data, logprobs)
            value = _number(said)
            require(
                value is not None and math.isfinite(value),
                f"its value for logprobs of shape {np.shape(logprobs[0])} is not a finite number",
                seen=said,
                wanted=_GIVES,
            )
            if isinstance(said, LossResult):
                require_equal(
                    [np.shape(grad) for grad in said.grads],
                    [np.shape(one) for one in logprobs],
                    "its gradients don't have the shapes of the logprobs",
                )
                for grad in said.grads:
                    require(np.all(np.isfinite(grad)), "a gradient isn't finite", seen=grad)

    @check()
    def test_metrics_are_finite_numbers(self, plugin: Any, batches: list[Batch]) -> None:
        """Metrics that it brings are finite numbers under names that are texts."""
        for data, logprobs in batches:
            for name, value in _metrics(plugin(data, logprobs)).items():
                number = as_number(value)
                require(
                    isinstance(name, str) and number is not None and math.isfinite(number),
                    f"its metric {name!r} is not a finite number",
                    seen=value,
                    wanted="{'name': 0.5}",
                )

    @check()
    def test_is_a_sum(self, loss: Callable[..., Any], batches: list[Batch]) -> None:
        """The same data twice have twice the loss: algorithms divide, losses don't."""
        for data, logprobs in batches:
            once, twice = _value(loss(data, logprobs)), _value(loss([*data] * 2, [*logprobs] * 2))
            require_close(
                twice, 2 * once, "the same data twice don't have twice the loss: it must be a sum", **_EXACT
            )

    @check()
    def test_inputs_are_left_as_they_were(self, plugin: Any, batches: list[Batch]) -> None:
        """Neither the data nor the logprobs are changed."""
        for data, logprobs in batches:
            before = copy.deepcopy(_arrays(data, logprobs))
            plugin(data, logprobs)
            for name, array in _arrays(data, logprobs).items():
                require(
                    np.array_equal(array, before[name]),
                    f"it changed an array that it was given: {name}",
                    seen=array,
                    wanted=f"{short_text(before[name])}, as it was",
                )

    @check()
    def test_gradient_is_that_of_the_value(
        self,
        loss: Callable[..., Any],
        plugin: Any,
        subject: Subject,
        batches: list[Batch],
        facts: dict[str, Any],
    ) -> None:
        """A gradient that it brings agrees with differences of its value; factors without a gradient are held fixed."""
        if _oracle(subject) is not None:
            pytest.skip("is a built-in one, as test_agrees_with_the_formula measures")
        for data, logprobs in batches:
            said = loss(data, logprobs)
            if not isinstance(said, LossResult):
                pytest.skip("evsys differentiates it")
            moved = _moved_value(loss, plugin, facts.get("stops_gradient"), data, logprobs)
            _compare_with_differences(moved, logprobs, said)

    @check()
    def test_agrees_with_the_formula(
        self, loss: Callable[..., Any], subject: Subject, batches: list[Batch]
    ) -> None:
        """A loss with the name of a built-in one is that loss: value and gradient."""
        oracle = _oracle(subject)
        if oracle is None:
            pytest.skip("isn't one of the built-in losses")
        name = subject.name.partition("/")[2]
        for data, logprobs in batches:
            said, wanted = loss(data, logprobs), oracle(data, logprobs)
            require_close(
                _value(said),
                wanted.loss,
                f"it is called {name}, and its value isn't that of {name} (losses of your own have other names)",
                **_EXACT,
            )
            if isinstance(said, LossResult):
                for own, other in zip(said.grads, wanted.grads, strict=True):
                    require_close(
                        own, other, f"it is called {name}, and its gradient isn't that of {name}", **_EXACT
                    )


def _copied(data: Sequence[Datum], logprobs: Logprobs) -> tuple[list[Datum], list[Any]]:
    """Each alone: what is there twice is two."""
    return [copy.deepcopy(datum) for datum in data], [np.copy(one) for one in logprobs]


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


def _number(said: Any) -> float | None:
    if isinstance(said, LossResult):
        return as_number(said.loss)
    return as_number(said[0] if isinstance(said, tuple) and said else said)


def _value(said: Any) -> float:
    value = _number(said)
    if value is None:
        breach("its value is not a number", seen=said, wanted=_GIVES)
    return value


def _metrics(said: Any) -> Mapping[Any, Any]:
    if isinstance(said, LossResult):
        return said.metrics
    return said[1] if isinstance(said, tuple) and len(said) > 1 and isinstance(said[1], Mapping) else {}


def _arrays(data: Sequence[Datum], logprobs: Logprobs) -> dict[str, Any]:
    """Every array that a loss is given, by a name that says which it is."""
    found: dict[str, Any] = {f"logprobs[{i}]": array for i, array in enumerate(logprobs)}
    for i, datum in enumerate(data):
        found[f"data[{i}].tokens"] = datum.tokens
        found |= {f"data[{i}].loss_inputs[{name!r}]": array for name, array in datum.loss_inputs.items()}
    return found


def _moved_value(
    loss: Callable[..., Any], plugin: Any, stops: bool | str | None, data: Sequence[Datum], logprobs: Logprobs
) -> Callable[[Logprobs], float]:
    """The loss as a function of the logprobs alone, by which its gradient is checked.

    Factors without a gradient keep the values that they have at `logprobs`: by the method that `stops` names, or because the
    other logprobs move along, so that the distances of which such factors are made stay the same.
    """
    if isinstance(stops, str):
        held = getattr(plugin, stops, None)
        if not callable(held):
            breach(f"its `stops_gradient` names {stops!r}, which isn't a method of it", wanted=_HOLDS)
        require_close(
            _value(held(*_copied(data, logprobs), _copied(data, logprobs)[1])),
            _value(loss(data, logprobs)),
            f"`{stops}` with the factors of the same logprobs isn't its value",
            **_EXACT,
        )
        return lambda moved: _value(held(*_copied(data, moved), _copied(data, logprobs)[1]))
    if not stops:
        return lambda moved: _value(loss(data, moved))

    def along(moved: Logprobs) -> float:
        others = []
        for datum, before, after in zip(data, logprobs, moved, strict=True):
            near = {
                name: values + (after - before)
                for name, values in datum.loss_inputs.items()
                if name in {"logprobs", "ref_logprobs"}
            }
            others.append(attrs.evolve(datum, loss_inputs={**datum.loss_inputs, **near}))
        return _value(loss(others, moved))

    return along


def _compare_with_differences(
    value: Callable[[Logprobs], float], logprobs: Logprobs, said: LossResult
) -> None:
    step = 1e-6
    for which, grad in enumerate(said.grads):
        for place in np.ndindex(np.shape(grad)):
            values = []
            for sign in (1, -1):
                moved = [np.array(one, dtype=np.float64) for one in logprobs]
                moved[which][place] += sign * step
                values.append(value(moved))
            difference = (values[0] - values[1]) / (2 * step)
            require_close(
                grad[place],
                difference,
                f"its gradient by logprobs[{which}][{', '.join(map(str, place))}] isn't the slope of its value there "
                "(factors without a gradient held fixed, if it says `stops_gradient`)",
                **_NEAR,
            )
