import sys

import pytest

from evsys import Registry
from evsys.errors import PluginLoadError
from evsys_verifiers_std.math_equal import MathEqual


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    registry = Registry(entry_points=())
    registry.register("verifier", "math_equal", MathEqual)
    with pytest.raises(
        PluginLoadError, match=r"needs the package `math-verify`; pip install 'evsys-verifiers-std\[math\]'"
    ):
        registry.build("verifier", "math_equal")


@pytest.fixture(scope="module")
def math_equal():
    pytest.importorskip("math_verify", reason="the extra `math` isn't installed")
    return MathEqual()


@pytest.mark.parametrize(
    ("output", "expected", "reward"),
    [
        (r"The answer is $\frac{1}{2}$.", "1/2", 1.0),
        ("0.5", r"\frac{1}{2}", 1.0),
        ("x^2+1", "1 + x^2", 1.0),
        (r"\boxed{(x+1)^2}", "x^2 + 2x + 1", 1.0),
        (r"\boxed{x^2}", "x^2 + 1", 0.0),
        (r"$\{3, 2, 1\}$", r"\{1, 2, 3\}", 1.0),
        (r"$2\sqrt{2}$", r"\sqrt{8}", 1.0),
        (r"$(1, 2)$", "(1,2)", 1.0),
        ("The answer is 42.", 42, 1.0),
        ("The answer is 41.", 42, 0.0),
        ("1,000", "1000", 1.0),
        ("x = 5", "5", 1.0),
        ("b", ["a", "b"], 1.0),
        ("", "42", 0.0),
        ("I don't know", "42", 0.0),
        ("\x00 $ \\frac{", "42", 0.0),
    ],
)
def test_equal_mathematics_is_right_however_it_is_written(math_equal, output, expected, reward):
    assert math_equal(output, expected, {}) == reward


def test_numbers_are_compared_to_the_decimals_that_are_asked_for(math_equal):
    assert math_equal("$3.1416$", r"\pi", {"decimals": 4}) == 1.0
    assert math_equal("$3.1416$", r"\pi", {"decimals": 6}) == 0.0


@pytest.mark.parametrize("expected", ["", "???", r"\frac{1}", None, {}])
def test_an_expectation_that_is_no_mathematics_is_refused(math_equal, expected):
    with pytest.raises(ValueError, match="`expected`"):
        math_equal.check(expected)
    with pytest.raises(ValueError, match="`expected`"):
        math_equal("1", expected, {})


def test_a_computation_without_end_is_stopped(math_equal):
    with pytest.raises(TimeoutError, match=r"took longer than 0\.5 s"):
        math_equal("$9^{9^{9^{9}}}$", "1", {"timeout_seconds": 0.5})
