"""The numpy tape: ordinary numpy code is differentiated, and what it can't do is an error that says so."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_runtime.losses.tape import TapeError, gradients, stop_gradient, trace


def check(function, *arrays, rtol=1e-6):
    """Compare the tape's gradients of `function` with central differences; return the value."""
    leaves = trace(arrays)
    result = function(*leaves)
    found = gradients(result, leaves)
    eps = 1e-6
    for i, array in enumerate(arrays):
        for place in np.ndindex(array.shape):
            up, down = ([other.copy() for other in arrays] for _ in range(2))
            up[i][place] += eps
            down[i][place] -= eps
            slope = (float(function(*up)) - float(function(*down))) / (2 * eps)
            assert found[i][place] == pytest.approx(slope, rel=rtol, abs=1e-6), (i, place)
    plain = function(*arrays)
    assert result.item() == pytest.approx(float(plain), rel=1e-12)
    return result.item()


X = np.array([0.3, -1.2, 2.0])
Y = np.array([0.7, 0.4, -0.6])
M = np.array([[0.3, -1.2, 2.0], [0.5, 1.1, -0.4]])

EXPRESSIONS = {
    "exp": lambda x: np.exp(x).sum(),
    "expm1": lambda x: np.expm1(x).sum(),
    "exp2": lambda x: np.exp2(x).sum(),
    "log": lambda x: np.log(np.abs(x) + 1).sum(),
    "log1p": lambda x: np.log1p(x * x).sum(),
    "log2": lambda x: np.log2(x * x + 1).sum(),
    "log10": lambda x: np.log10(x * x + 1).sum(),
    "sqrt": lambda x: np.sqrt(x * x + 1).sum(),
    "square": lambda x: np.square(x).sum(),
    "reciprocal": lambda x: np.reciprocal(x).sum(),
    "tanh": lambda x: np.tanh(x).sum(),
    "abs": lambda x: abs(x).sum() + np.fabs(x).sum(),
    "negative": lambda x: (-x * 2 + +x).sum(),
    "power": lambda x: (x**3).sum() + np.power(x, 2).sum(),
    "power of a constant": lambda x: (2.0**x).sum(),
    "traced exponent": lambda x: np.power(np.abs(x) + 1, x).sum(),
    "divide": lambda x: (1 / x + x / 3 - 2 / (x * x)).sum(),
    "maximum": lambda x: np.maximum(x, 0.1).sum(),
    "minimum": lambda x: np.minimum(0.1, x).sum(),
    "clip": lambda x: np.clip(x, -1, 1).sum() + x.clip(min=0).sum() + np.clip(x, None, 1).sum(),
    "where": lambda x: np.where(x > 0, x * x, 0.1 * x).sum(),
    "logaddexp": lambda x: np.logaddexp(x, 0.3).sum() + np.logaddexp(0.0, -x).sum(),
    "sum": lambda x: sum(x),
    "mean": lambda x: x.mean() + np.mean(x * x),
    "max and min": lambda x: np.max(x) * 2 + x.min(),
    "cumsum": lambda x: (np.cumsum(x) * np.array([1.0, 2.0, 3.0])).sum(),
    "index": lambda x: x[0] * x[-1],
    "slice": lambda x: (x[1:] * x[:-1]).sum(),
    "mask": lambda x: (x[np.array([True, False, True])] ** 2).sum(),
    "repeated index": lambda x: (x[np.array([0, 0, 2])] ** 2).sum(),
    "new axis": lambda x: (x[:, None] * x[None, :]).sum(),
    "sign": lambda x: (np.sign(x) * x * x).sum(),
    "concatenate": lambda x: (np.concatenate([x, np.ones(2), x[:1]]) ** 2).sum(),
    "stack": lambda x: (
        (np.stack([x, 2 * x, np.ones(3)]) ** 2).sum() + (np.stack([x.sum(), x.mean()]) ** 2).sum()
    ),
    "dot": lambda x: np.dot(x, np.array([1.0, 2.0, 3.0])) + x @ x,
    "matmul": lambda x: (M @ x).sum() + (x @ M.T).sum(),
    "reshape": lambda x: (x.reshape(3, 1) * x.reshape(1, 3)).sum(),
    "squeeze": lambda x: (np.squeeze(np.expand_dims(x, 0)) ** 2).sum(),
    "repeat": lambda x: (np.repeat(x, 2) ** 2).sum(),
    "flip": lambda x: (np.flip(x) * np.array([1.0, 2.0, 3.0])).sum(),
    "in place addition of a scalar": lambda x: _accumulated(x),
}


def _accumulated(x):
    total = 0.0
    for value in x:
        total += value * value
    return total


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_gradient_agrees_with_finite_differences(expression):
    check(expression, X)


TWO = {
    "products": lambda x, y: (x * y - x / (y * y + 1)).sum(),
    "minimum": lambda x, y: np.minimum(x * 3, y).sum(),
    "maximum": lambda x, y: np.maximum(x, y).sum(),
    "where": lambda x, y: np.where(x > y, x * x, np.exp(y)).sum(),
    "logaddexp": lambda x, y: np.logaddexp(x, y).sum(),
    "stack": lambda x, y: np.max(np.stack([x, y]), axis=0).sum(),
    "outer": lambda x, y: (x[:, None] * y + y[:, None]).mean(),
}


@pytest.mark.parametrize("expression", TWO.values(), ids=TWO)
def test_gradients_of_two_arrays_agree_with_finite_differences(expression):
    check(expression, X, Y)


def test_axes_and_broadcasting_of_matrices():
    check(lambda m: (m / m.sum(axis=1, keepdims=True)).max(axis=0).sum(), np.abs(M) + 0.1)
    check(lambda m: np.sum(m * np.array([1.0, 2.0, 3.0]), axis=(0, 1)), M)
    check(lambda m: (m.T @ m).sum(), M)
    check(lambda m: np.take_along_axis(m, np.array([[2], [0]]), axis=1).sum(), M)
    check(lambda m: np.broadcast_to(m[0], (4, 3)).sum() + np.transpose(m)[1].sum(), M)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    left=st.booleans(),
    right=st.booleans(),
    seed=st.integers(0, 999),
)
def test_broadcasting_of_any_two_shapes_gives_gradients_in_the_operands_shapes(
    rows, columns, left, right, seed
):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(rows if left else 1, columns))
    b = rng.normal(size=(columns,) if right else (rows, 1))
    check(lambda x, y: np.tanh(x * y + x).sum(), a, b)


def test_ties_of_minimum_and_maximum_share_the_gradient():
    (x,) = trace([np.array([1.0])])
    assert gradients(np.minimum(x, 1.0).sum(), [x])[0][0] == 0.5
    assert gradients(np.max(np.concatenate([x, x])), [x])[0][0] == 1.0


def test_clip_passes_the_gradient_at_its_bounds():
    (x,) = trace([np.array([0.0, 1.0, 2.0])])
    np.testing.assert_array_equal(gradients(np.clip(x, 0.0, 1.0).sum(), [x])[0], [1.0, 1.0, 0.0])


def test_stop_gradient_makes_a_constant_and_leaves_plain_values_alone():
    (x,) = trace([X])
    grads = gradients((stop_gradient(np.exp(x)) * x).sum(), [x])
    np.testing.assert_allclose(grads[0], np.exp(X))
    assert stop_gradient(3.0) == 3.0


def test_an_array_that_is_not_used_has_zero_gradient():
    x, y = trace([X, M])
    np.testing.assert_array_equal(gradients(x.sum(), [x, y])[1], np.zeros((2, 3)))


def test_comparisons_and_shape_functions_give_plain_arrays():
    (x,) = trace([X])
    assert type(x > 0) is np.ndarray
    assert type(np.sign(x)) is np.ndarray
    assert type(np.zeros_like(x)) is np.ndarray
    assert np.argmax(x) == 2
    assert (x.shape, x.ndim, x.size, len(x), np.shape(x)) == ((3,), 1, 3, 3, (3,))


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda x: np.sin(x), "numpy.sin"),
        (lambda x: np.sort(x), "numpy.sort"),
        (lambda x: np.linalg.norm(x), "norm"),
        (lambda x: np.add.reduce(x), "numpy.add.reduce"),
        (lambda x: x.std(), "std"),
        (lambda x: np.sum(x, dtype=np.float32), "numpy.sum"),
        (lambda x: np.exp(x, where=X > 0), "where"),
    ],
)
def test_an_unsupported_function_is_an_error_that_names_it(use, named):
    (x,) = trace([X])
    with pytest.raises(TapeError, match=named):
        use(x)


def _assign(x):
    x[0] = 1.0


def _write_into(x):
    plain = np.zeros(3)
    plain += x


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda x: np.array([x.sum(), x.sum()]), "np.stack"),
        (lambda x: np.asarray(x), "stop_gradient"),
        (lambda x: x.astype(int), "stop_gradient"),
        (lambda x: X[x], "stop_gradient|integer|index"),
        (_assign, "np.where"),
        (_write_into, "a = a \\+ b"),
    ],
)
def test_what_would_lose_a_gradient_is_refused_with_the_way_to_write_it(use, advice):
    (x,) = trace([X])
    with pytest.raises((TapeError, IndexError), match=advice):
        use(x)


def test_arrays_of_two_calls_can_not_be_mixed():
    (x,), (y,) = trace([X]), trace([Y])
    with pytest.raises(TapeError, match="two different calls"):
        x + y


def test_only_a_scalar_has_a_gradient():
    (x,) = trace([X])
    with pytest.raises(TapeError, match="sum it"):
        gradients(x * 2, [x])


def test_item_is_the_way_to_a_plain_number_and_comparisons_may_branch():
    (x,) = trace([X])
    assert type(x.sum().item()) is float
    assert x.sum().item() == x.sum().reshape(1, 1).item() == pytest.approx(X.sum())
    assert bool(x.sum() > 0) is True
    assert max(x).item() == 2.0
    assert [0 if value < 0 else 1 for value in x] == [1, 0, 1]
    with pytest.raises(ValueError, match="size 1"):
        x.item()


@pytest.mark.parametrize(
    "use",
    [
        lambda x: float(x[0]),
        lambda x: int(x[0]),
        lambda x: math.exp(x[0]),
        lambda x: math.fsum(x),
        lambda x: range(x[0]),
        lambda x: complex(x[0]),
    ],
)
def test_what_asks_for_a_plain_number_unasked_is_refused_with_the_way_to_write_it(use):
    (x,) = trace([X])
    with pytest.raises(
        TapeError, match=r"np\.exp\(x\).*np\.where, np\.stack or np\.concatenate.*x\.item\(\)"
    ):
        use(x)


def _flat(array, x):
    array.flat[0] = x[0]


@pytest.mark.parametrize(
    "write",
    [
        lambda array, x: array.__setitem__(0, x[0]),
        lambda array, x: array.__setitem__(slice(0, 1), x[0]),
        lambda array, x: array.__setitem__(slice(None), x),
        lambda array, x: array.__setitem__(X > 0, x[X > 0]),
        lambda array, x: array.astype(int).__setitem__(0, x[0]),
        lambda array, x: array.fill(x[0]),
        lambda array, x: array.put([0], x[0]),
        lambda array, x: np.copyto(array, x),
        lambda array, x: np.add.at(array, [0], x[0]),
        lambda array, x: np.fromiter(iter(x), float),
        lambda array, x: np.full(3, x[0]),
        _flat,
    ],
)
def test_a_traced_number_can_not_be_written_into_a_plain_array(write):
    (x,) = trace([X])
    array = np.zeros(3)
    with pytest.raises((TapeError, ValueError)):
        write(array, x)
    np.testing.assert_array_equal(array, np.zeros(3))


def test_array_methods_of_numpy_are_known():
    (x,) = trace([M])
    assert x.astype(np.float32) is x
    assert x.copy() is x
    assert x.ravel().shape == (6,)
    assert "Traced" in repr(x)
    with pytest.raises(AttributeError):
        x.nonsense  # noqa: B018
