"""Losses written with torch or jax: run with that library's own gradients when the user has it.

Nothing here is imported for numpy losses, and neither library is ever a dependency.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from evsys.errors import AlgorithmError
from evsys.types import Datum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Framework", "framework_of", "jax_loss", "loss", "torch_loss"]

Framework = Literal["numpy", "torch", "jax"]

_MARK = "__evsys_framework__"
_MODULES: Mapping[str, Framework] = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "jnp": "jax"}


def loss[F: Callable[..., Any]](*, framework: Framework) -> Callable[[F], F]:
    """Say which library a loss is written with: `@loss(framework="torch")`.

    Without it a function whose `logprobs` are annotated as `list[torch.Tensor]` or `list[jax.Array]` is taken for a
    torch or jax loss, any other for plain numpy.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, framework)
        return function

    return mark


def framework_of(function: Callable[..., Any]) -> Framework:
    """The library that a loss is written with, by its mark or by the annotation of its second argument."""
    while isinstance(function, functools.partial):
        function = function.func
    marked: Framework | None = getattr(function, _MARK, None)
    if marked is not None:
        return marked
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return "numpy"
    if len(arguments) < 2:
        return "numpy"
    annotation = arguments[1].annotation
    plain = function if inspect.isroutine(function) else type(function).__call__
    return _mentions(annotation, getattr(inspect.unwrap(plain), "__globals__", {})) or "numpy"


def _mentions(annotation: Any, names: Mapping[str, Any]) -> Framework | None:
    if isinstance(annotation, str):
        for word in re.findall(r"[A-Za-z_]\w*", annotation):
            found = _MODULES.get(word) or (_mentions(names[word], {}) if word in names else None)
            if found:
                return found
        return None
    for argument in get_args(annotation):
        if found := _mentions(argument, names):
            return found
    module = (
        annotation.__name__ if inspect.ismodule(annotation) else getattr(annotation, "__module__", None) or ""
    )
    return _MODULES.get(module.partition(".")[0])


def torch_loss(
    name: str,
    function: Callable[..., Any],
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    params: Mapping[str, Any],
) -> tuple[Any, Any]:
    """Call a torch loss; returns what it returned and, where that has a loss to differentiate, its gradients.

    The loss gets float64 leaves, and its data's loss inputs as tensors (floats in float64).
    """
    torch = _import("torch", name)

    def tensor(array: NDArray[Any]) -> Any:
        floating = np.issubdtype(array.dtype, np.floating)
        return torch.as_tensor(np.array(array, dtype=np.float64 if floating else array.dtype))

    leaves = [tensor(np.asarray(array, dtype=np.float64)).requires_grad_() for array in logprobs]
    result = function(_converted(data, tensor), leaves, **params)
    value = result[0] if isinstance(result, tuple) else result
    if not isinstance(value, torch.Tensor):
        return result, None
    if not value.requires_grad:
        raise ValueError("the loss doesn't depend on the logprobs; was it detached?")
    if value.numel() != 1:
        raise ValueError(f"the loss must be a scalar, its shape is {list(value.shape)}; sum it")
    found = torch.autograd.grad(value.reshape(()), leaves, allow_unused=True)
    grads = [
        np.zeros(leaf.shape) if grad is None else grad.numpy()
        for leaf, grad in zip(leaves, found, strict=True)
    ]
    return _detach(result, lambda x: x.detach().item() if isinstance(x, torch.Tensor) else x), grads


def jax_loss(
    name: str,
    function: Callable[..., Any],
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    params: Mapping[str, Any],
) -> tuple[Any, Any]:
    """Call a jax loss and differentiate it, in jax's own default precision; loss inputs are jax arrays."""
    jax = _import("jax", name)
    converted = _converted(data, jax.numpy.asarray)

    def scalar(leaves: list[Any]) -> tuple[Any, Any]:
        result = function(converted, leaves, **params)
        value, metrics = result if isinstance(result, tuple) else (result, {})
        if jax.numpy.shape(value) != ():
            raise ValueError(
                f"the loss must be a scalar, its shape is {list(jax.numpy.shape(value))}; sum it"
            )
        return value, metrics

    leaves = [jax.numpy.asarray(array) for array in logprobs]
    (value, metrics), grads = jax.value_and_grad(scalar, has_aux=True)(leaves)
    return (float(value), {key: float(x) for key, x in metrics.items()}), [np.asarray(grad) for grad in grads]


def _converted(data: Sequence[Datum], convert: Callable[[NDArray[Any]], Any]) -> list[Datum]:
    return [
        Datum(
            tokens=datum.tokens,
            loss_inputs={key: convert(np.asarray(array)) for key, array in datum.loss_inputs.items()},
            meta=datum.meta,
        )
        for datum in data
    ]


def _detach(result: Any, plain: Callable[[Any], Any]) -> Any:
    if not isinstance(result, tuple):
        return plain(result)
    value, metrics = result
    return plain(value), {key: plain(x) for key, x in metrics.items()}


def _import(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise AlgorithmError(
            f"the loss {name!r} is written with {module}, which isn't installed",
            hint=f"pip install {module}, or write the loss in plain numpy",
        ) from error
