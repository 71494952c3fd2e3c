"""`compute_loss`: any loss, by name or callable, becomes a checked number and its gradients by the logprobs.

A loss may return one of three things:

1. a `LossResult` with gradients of its own, made with any library;
2. a scalar, or `(scalar, metrics)`, computed with numpy on traced arrays, which evsys differentiates;
3. the same computed with torch or jax, when the function is marked or annotated so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.errors import AlgorithmError, EvsysError, boundary
from evsys.types import LossResult
from evsys_runtime.losses.builtin import BUILTIN_LOSSES
from evsys_runtime.losses.frameworks import framework_of, jax_loss, torch_loss
from evsys_runtime.losses.tape import TapeError, Traced, gradients, stop_gradient, trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys import Registry
    from evsys.types import Datum, LossFn

__all__ = ["compute_loss", "hides_builtin", "loss_name", "resolve_loss"]


def compute_loss(
    loss_fn: str | LossFn,
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    params: Mapping[str, Any] | None = None,
    registry: Registry | None = None,
) -> LossResult:
    """Compute a loss and its gradients.

    Args:
        loss_fn: a built-in loss's name, a registered name, or a callable.
        data: what the loss is computed on.
        logprobs: one array a datum in the shape of its `target_tokens`, [N] or [N, K], in nats.
        params: settings passed to the loss by keyword.
        registry: where names are looked up; absent, the current one. A loss that a project registers wins over the
            built-in one of its name, a built-in over an installed one.

    Returns:
        The loss as a float, gradients in the shapes and types of `logprobs`, metrics as floats.

    Raises:
        AlgorithmError: the loss failed, isn't a finite scalar, or its gradients have the wrong shape or aren't finite.
        PluginNotFoundError: no loss has this name.
    """
    name, function, settings = resolve_loss(loss_fn, params, registry)
    with boundary("algorithm", f"loss {name}"):
        result = _call(name, function, data, logprobs, settings)
    return _check_result(name, result, logprobs, built_in=function in BUILTIN_LOSSES.values())


def resolve_loss(
    loss_fn: str | LossFn, params: Mapping[str, Any] | None = None, registry: Registry | None = None
) -> tuple[str, Callable[..., Any], dict[str, Any]]:
    """The name of a loss, the function behind it, and the settings it is still to be called with.

    A registered class is built from `params`, which are then used up.

    Raises:
        PluginNotFoundError: no loss has this name.
    """
    settings = dict(params or {})
    if not isinstance(loss_fn, str):
        return loss_name(loss_fn), loss_fn, settings
    if registry is None:
        from evsys import current_registry

        registry = current_registry()
    if loss_fn in BUILTIN_LOSSES and not hides_builtin(loss_fn, registry):
        return loss_fn, BUILTIN_LOSSES[loss_fn], settings
    found = registry.get("loss", loss_fn)
    if inspect.isclass(found):
        return loss_fn, registry.build("loss", loss_fn, settings), {}
    return loss_fn, found, settings


def hides_builtin(name: str, registry: Registry | None = None) -> bool:
    """True where the project registers a loss under the name of a built-in one; `registry.warnings` then says so.

    A backend computes its own loss for such a name, so the project's is to be handed over as a callable.
    """
    if name not in BUILTIN_LOSSES:
        return False
    if registry is None:
        from evsys import current_registry

        registry = current_registry()
    if not any(entry.local and entry.name == name for entry in registry.entries("loss")):
        return False
    warning = f"loss {name!r} is the project's own and hides the built-in one"
    if warning not in registry.warnings:
        registry.warnings.append(warning)
    return True


def loss_name(loss_fn: str | Callable[..., Any]) -> str:
    """The name of a loss in messages and metrics."""
    if isinstance(loss_fn, str):
        return loss_fn
    while isinstance(loss_fn, functools.partial):
        loss_fn = loss_fn.func
    return str(getattr(loss_fn, "__name__", None) or type(loss_fn).__name__)


def _call(
    name: str,
    function: Callable[..., Any],
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    params: Mapping[str, Any],
) -> LossResult:
    if brings_gradients(function):
        return _own_gradients(function(data, logprobs, **params))
    framework = framework_of(function)
    if framework == "numpy":
        return _numpy_loss(function, data, logprobs, params)
    result, grads = (torch_loss if framework == "torch" else jax_loss)(name, function, data, logprobs, params)
    return _own_gradients(result) if grads is None else _with_gradients(result, grads)


def brings_gradients(function: Callable[..., Any]) -> bool:
    """True for a function annotated to return a `LossResult`, which then gets plain arrays."""
    while isinstance(function, functools.partial):
        function = function.func
    plain = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    annotation = getattr(plain, "__annotations__", {}).get("return")
    return annotation is LossResult or (
        isinstance(annotation, str) and annotation.split(".")[-1] == "LossResult"
    )


def _numpy_loss(
    function: Callable[..., Any],
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    params: Mapping[str, Any],
) -> LossResult:
    leaves = trace(logprobs)
    try:
        result = function(data, leaves, **params)
    except (TapeError, ValueError) as error:
        # numpy reports an assignment into a plain array in its own words, with ours as the cause.
        refused = error if isinstance(error, TapeError) else error.__cause__
        if not isinstance(refused, TapeError):
            raise
        # Perhaps a loss that brings its own gradients and only forgot to say so in its annotation.
        plain = function(data, [np.array(array, dtype=np.float64) for array in logprobs], **params)
        if isinstance(plain, LossResult):
            return plain
        raise refused from error.__cause__
    if isinstance(result, LossResult):
        return result
    value = result[0] if isinstance(result, tuple) and result else result
    if not isinstance(value, Traced):
        return _own_gradients(result)
    return _with_gradients(result, gradients(value, leaves))


def _own_gradients(result: Any) -> LossResult:
    """Accept only a `LossResult`: anything else has lost its gradient on the way."""
    if isinstance(result, LossResult):
        return result
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("a loss must be a plain function, not async")
    value = result[0] if isinstance(result, tuple) and result else result
    raise TypeError(
        f"it returned {type(value).__name__}, which has no gradient: return the scalar as numpy made it from the "
        "logprobs (without .item()), or a LossResult with gradients"
    )


def _with_gradients(result: Any, grads: Sequence[NDArray[Any]]) -> LossResult:
    if not isinstance(result, tuple):
        return LossResult(loss=_number(result), grads=grads)
    if len(result) != 2 or not isinstance(result[1], Mapping):
        raise TypeError("a loss returns a scalar, (scalar, metrics) or a LossResult")
    return LossResult(loss=_number(result[0]), grads=grads, metrics=result[1])


def _number(value: Any) -> float:
    return value.item() if isinstance(value, Traced) else float(value)


DIVERGED = "training diverged: lower the learning rate, or look at the data of this step"
FORMULA = "look for log(0), exp of a large number or a division by zero"


def _check_result(
    name: str, result: LossResult, logprobs: Sequence[NDArray[Any]], *, built_in: bool
) -> LossResult:
    """The result with plain numbers and arrays in it, or an error that says what is wrong with it."""

    def wrong(what: str, hint: str | None = None, **facts: str) -> EvsysError:
        return AlgorithmError(f"the loss {name!r} {what}", hint=hint, plugin=name, **facts)

    def infinite(what: str, number: str) -> EvsysError:
        """The error of a number that isn't finite; its hint depends on whether the model or the formula made it."""
        model = built_in or not all(np.isfinite(lp).all() for lp in logprobs)
        return wrong(what, DIVERGED if model else FORMULA, not_finite=number)

    value = np.asarray(stop_gradient(result.loss))
    if value.size != 1:
        raise wrong(f"must be a scalar, its shape is {list(value.shape)}", "sum it over all tokens")
    if not np.isfinite(value).all():
        raise infinite(f"is {value.item()}", "loss")
    if len(result.grads) != len(logprobs):
        raise wrong(f"brought gradients for {len(result.grads)} of {len(logprobs)} data")
    grads = []
    for i, (gradient, values) in enumerate(zip(result.grads, logprobs, strict=True)):
        array = np.asarray(stop_gradient(gradient))
        if array.shape != values.shape:
            raise wrong(
                f"brought a gradient of shape {list(array.shape)} for datum {i}, expected {list(values.shape)}"
            )
        if not np.isfinite(array).all():
            where = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
            raise infinite(
                f"has a gradient of {array[where]} in datum {i} at position {where[0]}", "gradient"
            )
        grads.append(array.astype(values.dtype, copy=False))
    metrics = {key: float(stop_gradient(number)) for key, number in result.metrics.items()}
    return LossResult(loss=float(value.item()), grads=grads, metrics=metrics)
