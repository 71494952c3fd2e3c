# ruff: noqa: ARG005 - the rules of a table share one signature
"""Gradient rules of the tape: which numpy functions it knows, and how a gradient goes back through each.

A rule gets the plain operands and the plain result and returns one derivative an operand. If a function isn't
differentiable, the conventions are those of the field's autograd libraries: ties of minimum and maximum share the
gradient equally, clip passes it at its bounds, abs has 0 at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys_runtime.losses.tape import Pullback, TapeError, Traced, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SUPPORTED", "apply_function", "apply_ufunc", "getitem"]

type Array = NDArray[Any]

_KNOWN = "np.exp, log, minimum, maximum, clip, where, sum, mean, concatenate, stack, power, abs, tanh, sqrt, logaddexp"


def _power(a: Array, b: Array, y: Array) -> tuple[Array, Array]:
    with np.errstate(divide="ignore", invalid="ignore"):  # the logarithm only matters where b is traced
        return b * np.power(a, np.where(b == 0, 1.0, b - 1.0)), y * np.log(a)


def _broadcast_pair(first: Array, second: Array) -> tuple[Array, Array]:
    ties = first.astype(np.float64) + second
    ties = np.where(ties == 0, 1.0, ties)  # only where an operand is nan
    return first / ties, second / ties


_UNARY: Mapping[np.ufunc, Callable[[Array, Array], Array]] = {
    np.negative: lambda x, y: np.full_like(x, -1.0),
    np.positive: lambda x, y: np.ones_like(x),
    np.absolute: lambda x, y: np.sign(x),
    np.fabs: lambda x, y: np.sign(x),
    np.exp: lambda x, y: y,
    np.expm1: lambda x, y: y + 1.0,
    np.exp2: lambda x, y: y * np.log(2.0),
    np.log: lambda x, y: 1.0 / x,
    np.log1p: lambda x, y: 1.0 / (1.0 + x),
    np.log2: lambda x, y: 1.0 / (x * np.log(2.0)),
    np.log10: lambda x, y: 1.0 / (x * np.log(10.0)),
    np.sqrt: lambda x, y: 0.5 / y,
    np.square: lambda x, y: 2.0 * x,
    np.reciprocal: lambda x, y: -y * y,
    np.tanh: lambda x, y: 1.0 - y * y,
}
"""d(result)/d(x) from the operand x and the result y."""

_BINARY: Mapping[np.ufunc, Callable[[Array, Array, Array], tuple[Array | float, Array | float]]] = {
    np.add: lambda a, b, y: (1.0, 1.0),
    np.subtract: lambda a, b, y: (1.0, -1.0),
    np.multiply: lambda a, b, y: (b, a),
    np.true_divide: lambda a, b, y: (1.0 / b, -y / b),
    np.power: _power,
    np.float_power: _power,
    np.minimum: lambda a, b, y: _broadcast_pair(a == y, b == y),
    np.maximum: lambda a, b, y: _broadcast_pair(a == y, b == y),
    np.logaddexp: lambda a, b, y: (np.exp(a - y), np.exp(b - y)),
}
"""d(result)/d(a) and d(result)/d(b) from both operands and the result y."""

_WITHOUT_GRADIENT = frozenset(
    {
        *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
        *(np.sign, np.floor, np.ceil, np.rint, np.trunc, np.isfinite, np.isnan, np.isinf, np.signbit),
        *(np.logical_and, np.logical_or, np.logical_not),
    }
)
"""Piecewise constant: the result is a plain array."""


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a ufunc and record it."""
    name = f"numpy.{ufunc.__name__}"
    if method != "__call__":
        raise TapeError(f"{name}.{method} has no gradient rule; use np.sum, np.max or np.min")
    if any(isinstance(out, Traced) for out in kwargs.get("out", ())) or kwargs.get("out") is not None:
        raise TapeError(
            f"{name}: writing into an array (out=, or += on a plain array) isn't recorded; write a = a + b"
        )
    if kwargs:
        raise TapeError(
            f"{name}: the option {next(iter(kwargs))!r} isn't recorded; use np.where around the call"
        )
    plain = [_plain(value) for value in inputs]
    if ufunc in _WITHOUT_GRADIENT:
        return ufunc(*plain)
    if ufunc is np.matmul:
        return _matmul(inputs, plain)
    if ufunc not in _UNARY and ufunc not in _BINARY:
        raise TapeError(
            f"{name} has no gradient rule; return a LossResult with your own gradients, or write it with {_KNOWN}"
        )
    result = np.asarray(ufunc(*plain))
    slopes = (
        _UNARY[ufunc](plain[0], result) if ufunc in _UNARY else _BINARY[ufunc](plain[0], plain[1], result)
    )
    if ufunc in _UNARY:
        slopes = (slopes,)  # type: ignore[assignment]
    return record(
        result,
        [
            (x, _times(slope, x.shape))
            for x, slope in zip(inputs, slopes, strict=True)
            if isinstance(x, Traced)
        ],
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Traced) else np.asarray(value)


def _times(slope: Any, shape: tuple[int, ...]) -> Pullback:
    return lambda gradient: _unbroadcast(gradient * slope, shape)


def _unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which an operand of `shape` was repeated."""
    if gradient.shape == shape:
        return gradient
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return np.broadcast_to(gradient.sum(axis=repeated, keepdims=True), shape)


def _matmul(inputs: Sequence[Any], plain: Sequence[Array]) -> Traced:
    a, b = plain
    if a.ndim > 2 or b.ndim > 2:
        raise TapeError("numpy.matmul has a gradient rule for vectors and matrices only")

    def back_a(gradient: Array) -> Array:
        return np.outer(gradient, b).reshape(a.shape) if b.ndim == 1 else gradient @ b.T

    def back_b(gradient: Array) -> Array:
        return np.outer(a, gradient).reshape(b.shape) if a.ndim == 1 else a.T @ gradient

    back = (back_a, back_b)
    return record(np.matmul(a, b), [(x, back[i]) for i, x in enumerate(inputs) if isinstance(x, Traced)])


def getitem(x: Traced, key: Any) -> Traced:
    """Index with anything numpy takes: integers, slices, masks, arrays of positions."""
    if isinstance(key, Traced):
        raise TapeError("an index can't be traced; compare first (x > 0), or use stop_gradient")

    def back(gradient: Array) -> Array:
        whole = np.zeros(x.shape)
        np.add.at(whole, key, gradient)  # adds up where a position is taken twice
        return whole

    return record(x.value[key], [(x, back)])


# --- functions that aren't ufuncs ---------------------------------------------------------------------------------


def apply_function(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute one of numpy's functions and record it."""
    rule = _FUNCTIONS.get(func)
    name = f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}"
    if rule is None:
        raise TapeError(
            f"{name} has no gradient rule; return a LossResult with your own gradients, or write it with {_KNOWN}"
        )
    try:
        return rule(*args, **kwargs)
    except TapeError:
        raise
    except TypeError as error:
        raise TapeError(f"{name}: an option isn't recorded here ({error})") from error


def _sum(x: Any, axis: Any = None, keepdims: bool = False) -> Traced:
    back = _spread(x.shape, axis, keepdims)
    return record(x.value.sum(axis=axis, keepdims=keepdims), [(x, back)])


def _mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    total = _sum(x, axis, keepdims)
    return total / (x.size / max(total.size, 1))


def _spread(shape: tuple[int, ...], axis: Any, keepdims: bool) -> Pullback:
    """Give each summed element the gradient of its sum."""

    def back(gradient: Array) -> Array:
        if axis is not None and not keepdims:
            gradient = np.expand_dims(gradient, axis)
        return np.broadcast_to(gradient, shape)

    return back


def _extreme(function: Any) -> Callable[..., Traced]:
    def rule(x: Any, axis: Any = None, keepdims: bool = False) -> Traced:
        hit = (x.value == function(x.value, axis=axis, keepdims=True)).astype(np.float64)
        hit /= hit.sum(axis=axis, keepdims=True)
        spread = _spread(x.shape, axis, keepdims)
        return record(
            function(x.value, axis=axis, keepdims=keepdims), [(x, lambda gradient: spread(gradient) * hit)]
        )

    return rule


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Traced:
    low = a_min if a_min is not None else min
    high = a_max if a_max is not None else max
    if isinstance(low, Traced) or isinstance(high, Traced):
        raise TapeError("numpy.clip: a traced bound has no gradient rule; use np.minimum and np.maximum")
    inside = np.ones(x.shape, bool)
    inside = inside if low is None else inside & (x.value >= low)
    inside = inside if high is None else inside & (x.value <= high)
    result = np.clip(x.value, low, high)
    if result.shape != x.shape:
        raise TapeError("numpy.clip: bounds that change the array's shape have no gradient rule")
    return record(result, [(x, lambda gradient: gradient * inside)])


def _select_where(condition: Any, *choices: Any) -> Any:
    chosen = np.asarray(_plain(condition), dtype=bool)
    if len(choices) != 2:
        return np.where(chosen, *choices)
    backs: list[tuple[Traced, Pullback]] = []
    for choice, taken in zip(choices, (chosen, ~chosen), strict=True):
        if isinstance(choice, Traced):
            backs.append((choice, _pull_selection(taken, choice.shape)))
    result = np.where(chosen, _plain(choices[0]), _plain(choices[1]))
    return record(result, backs) if backs else result


def _pull_selection(taken: Array, shape: tuple[int, ...]) -> Pullback:
    return lambda gradient: _unbroadcast(np.where(taken, gradient, 0.0), shape)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Traced:
    plain = [_plain(array) for array in arrays]
    edges = np.cumsum([0, *(array.shape[axis] for array in plain)])

    def part(i: int) -> Pullback:
        return lambda gradient: np.take(gradient, range(int(edges[i]), int(edges[i + 1])), axis=axis)

    return record(
        np.concatenate(plain, axis=axis),
        [(x, part(i)) for i, x in enumerate(arrays) if isinstance(x, Traced)],
    )


def _stack(arrays: Sequence[Any], axis: int = 0) -> Traced:
    def part(i: int) -> Pullback:
        return lambda gradient: np.take(gradient, i, axis=axis)

    return record(
        np.stack([_plain(array) for array in arrays], axis=axis),
        [(x, part(i)) for i, x in enumerate(arrays) if isinstance(x, Traced)],
    )


def _movement_rule(function: Any) -> Callable[..., Traced]:
    """A rule for functions that only move elements to another shape."""

    def rule(x: Any, *args: Any, **kwargs: Any) -> Traced:
        places = function(np.arange(x.size).reshape(x.shape), *args, **kwargs)

        def back(gradient: Array) -> Array:
            flat = np.zeros(x.size)
            np.add.at(flat, places.ravel(), gradient.ravel())
            return flat.reshape(x.shape)

        return record(x.value.ravel()[places], [(x, back)])

    return rule


def _cumsum(x: Any, axis: int | None = None) -> Traced:
    along = -1 if axis is None else axis
    values = x.value.ravel() if axis is None else x.value

    def back(gradient: Array) -> Array:
        return np.flip(np.cumsum(np.flip(gradient, along), axis=along), along).reshape(x.shape)

    return record(np.cumsum(values, axis=along), [(x, back)])


def _dot(a: Any, b: Any) -> Any:
    return np.multiply(a, b) if min(np.ndim(_plain(a)), np.ndim(_plain(b))) == 0 else np.matmul(a, b)


def _constant(function: Any) -> Callable[..., Any]:
    """A rule for functions that only look at an array's shape, or whose result has no gradient."""
    return lambda x, *args, **kwargs: function(_plain(x), *args, **kwargs)


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.sum: _sum,
    np.mean: _mean,
    np.max: _extreme(np.max),
    np.min: _extreme(np.min),
    np.clip: _clip,
    np.where: _select_where,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.cumsum: _cumsum,
    np.dot: _dot,
    **{
        function: _movement_rule(function)
        for function in (
            *(np.reshape, np.ravel, np.squeeze, np.expand_dims, np.transpose, np.broadcast_to),
            *(np.take, np.take_along_axis, np.repeat, np.flip),
        )
    },
    **{
        function: _constant(function)
        for function in (
            *(np.zeros_like, np.ones_like, np.full_like, np.shape, np.ndim, np.size),
            *(np.argmax, np.argmin, np.argsort, np.any, np.all, np.count_nonzero),
        )
    },
}

SUPPORTED: tuple[str, ...] = tuple(
    sorted(
        {function.__name__ for function in (*_UNARY, *_BINARY, *_WITHOUT_GRADIENT, np.matmul, *_FUNCTIONS)}
    )
)
"""Names of the numpy functions that may be used in a loss."""
