"""A small reverse-mode tape behind numpy's own dispatch: ordinary numpy code on `Traced` arrays is differentiated.

A user's loss calls `np.exp`, `np.minimum`, slices and sums; numpy hands every call on a `Traced` array to
`__array_ufunc__` or `__array_function__`, where it is computed on the plain values and recorded with the rule that
takes its gradient back. `gradients` walks the record from the end. All arithmetic is float64.

A function without a rule raises `TapeError` naming it. Functions that can't carry a gradient at all (comparisons,
`np.sign`) return plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_np: Any = np
"""For calls with traced arguments, which numpy's own annotations don't know."""

__all__ = ["TapeError", "Traced", "gradients", "stop_gradient", "trace"]

type Pullback = Callable[[NDArray[Any]], NDArray[Any]]
"""From the gradient by a result to the gradient by one of its operands."""


class TapeError(TypeError):
    """A numpy feature that the tape can't take a gradient through."""


class Traced:
    """An array whose operations are recorded. Looks like an array; `value` is the plain float64 array behind it."""

    __slots__ = ("_index", "_record", "value")
    __array_priority__ = 1000.0

    def __init__(self, value: NDArray[Any], record: list[list[tuple[int, Pullback]]]) -> None:
        self.value = value
        self._record = record
        self._index = len(record)
        record.append([])

    # --- what numpy calls ---------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from evsys_runtime.losses.tape_rules import apply_ufunc

        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        from evsys_runtime.losses.tape_rules import apply_function

        return apply_function(func, args, kwargs)

    def __array__(self, *_args: Any, **_kwargs: Any) -> NDArray[Any]:
        raise TapeError(
            "a traced array can't become a plain one inside a loss, its gradient would be lost; "
            "use np.stack([...]) instead of np.array([...]), and stop_gradient(x) where no gradient is meant"
        )

    # --- shape --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always float64."""
        return self.value.dtype

    @property
    def T(self) -> Any:  # noqa: N802 - numpy's name
        """The transpose."""
        return _np.transpose(self)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Traced]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Traced:
        from evsys_runtime.losses.tape_rules import getitem

        return getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TapeError(
            "a traced array can't be changed in place; build a new one with np.where or np.concatenate"
        )

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise TapeError(
                f"the array method .{name}() has no gradient rule; see the losses page for the supported methods"
            )
        raise AttributeError(f"'Traced' object has no attribute {name!r}")

    # --- leaving the tape on purpose ------------------------------------------------------------------------------

    def item(self) -> float:
        """The number in an array of one element, without gradient: the way to metrics and messages."""
        return float(self.value.item())

    def __bool__(self) -> bool:  # a branch has no gradient that could be lost, like a comparison
        return bool(self.value)

    # What asks for a plain number without saying so: `math.exp(x)`, `plain[i] = x`, `float(x)`, `range(x)`.

    def __float__(self) -> float:
        raise _lost_error("float")

    def __int__(self) -> int:
        raise _lost_error("int")

    def __index__(self) -> int:
        raise _lost_error("index")

    # --- methods of arrays that losses use ------------------------------------------------------------------------

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`np.sum`."""
        return _np.sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`np.mean`."""
        return _np.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`np.max`."""
        return _np.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`np.min`."""
        return _np.min(self, axis=axis, keepdims=keepdims)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """`np.clip`."""
        return _np.clip(self, min, max)

    def reshape(self, *shape: Any) -> Any:
        """`np.reshape`."""
        return _np.reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Any:
        """`np.reshape` to one axis."""
        return _np.reshape(self, -1)

    def astype(self, dtype: Any, **_options: Any) -> Traced:
        """Itself: arithmetic stays in float64, so a cast to a float type is accepted and has no effect."""
        if not np.issubdtype(dtype, np.floating):
            raise TapeError(
                f"a traced array can't become {np.dtype(dtype).name}; use stop_gradient(x).astype(...)"
            )
        return self

    def copy(self) -> Traced:
        """Itself: it can't be changed."""
        return self

    # --- operators ------------------------------------------------------------------------------------------------
    # No __iadd__ and friends: without them Python turns `a += b` into `a = a + b`.

    def __add__(self, other: Any) -> Any:
        return _np.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return _np.add(other, self)

    def __sub__(self, other: Any) -> Any:
        return _np.subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _np.subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return _np.multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        return _np.multiply(other, self)

    def __truediv__(self, other: Any) -> Any:
        return _np.true_divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _np.true_divide(other, self)

    def __pow__(self, other: Any) -> Any:
        return _np.power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return _np.power(other, self)

    def __matmul__(self, other: Any) -> Any:
        return _np.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _np.matmul(other, self)

    def __neg__(self) -> Any:
        return _np.negative(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _np.absolute(self)

    def __lt__(self, other: Any) -> Any:
        return _np.less(self, other)

    def __le__(self, other: Any) -> Any:
        return _np.less_equal(self, other)

    def __gt__(self, other: Any) -> Any:
        return _np.greater(self, other)

    def __ge__(self, other: Any) -> Any:
        return _np.greater_equal(self, other)

    def __eq__(self, other: object) -> Any:
        return _np.equal(self, other)

    def __ne__(self, other: object) -> Any:
        return _np.not_equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # like an array


def _lost_error(what: str) -> TapeError:
    return TapeError(
        f"a traced number can't become a plain {what} unasked, its gradient would be lost: use np.exp(x) instead of "
        "math.exp(x), np.where, np.stack or np.concatenate instead of assigning into a plain array, and x.item() "
        "where the number is wanted without gradient"
    )


def trace(arrays: Sequence[NDArray[Any]]) -> list[Traced]:
    """Traced copies of `arrays` in float64, all on one new tape."""
    record: list[list[tuple[int, Pullback]]] = []
    return [Traced(np.array(array, dtype=np.float64), record) for array in arrays]


def stop_gradient[T](value: T | Traced) -> T | NDArray[Any]:
    """The plain array behind a traced one: a constant as far as gradients go. Anything else comes back as it is."""
    return value.value.copy() if isinstance(value, Traced) else value


def record(value: NDArray[Any], operands: Sequence[tuple[Traced, Pullback]]) -> Traced:
    """A new traced array that came from `operands`, each with the rule that takes a gradient back to it.

    Raises:
        TapeError: the operands belong to different tapes, for example to another call of the loss.
    """
    tape = operands[0][0]._record  # noqa: SLF001
    if any(operand._record is not tape for operand, _ in operands):  # noqa: SLF001
        raise TapeError(
            "arrays of two different calls of the loss are mixed; don't keep traced arrays between calls"
        )
    result = Traced(np.asarray(value, dtype=np.float64), tape)
    tape[-1] = [(operand._index, pullback) for operand, pullback in operands]  # noqa: SLF001
    return result


def gradients(result: Traced, leaves: Sequence[Traced]) -> list[NDArray[np.float64]]:
    """d(result)/d(leaf) for each leaf, in the leaf's shape; zeros where the result doesn't depend on it.

    Raises:
        TapeError: `result` has more than one element.
    """
    if result.size != 1:
        raise TapeError(f"only a scalar has a gradient, this has the shape {list(result.shape)}; sum it")
    tape = result._record  # noqa: SLF001
    found: dict[int, NDArray[Any]] = {result._index: np.ones(result.shape)}  # noqa: SLF001
    keep = {leaf._index for leaf in leaves}  # noqa: SLF001
    for index in range(result._index, -1, -1):  # noqa: SLF001
        gradient = found.get(index)
        if gradient is None:
            continue
        for operand, pullback in tape[index]:
            part = pullback(gradient)
            found[operand] = found[operand] + part if operand in found else part
        if index not in keep:
            del found[index]  # frees the memory of long tapes as it goes
    return [
        np.array(found[leaf._index], dtype=np.float64)  # noqa: SLF001
        if leaf._index in found  # noqa: SLF001
        else np.zeros(leaf.shape)
        for leaf in leaves
    ]
