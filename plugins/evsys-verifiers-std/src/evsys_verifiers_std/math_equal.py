"""The verifier `math_equal`: whether an answer is the same mathematics as what is expected, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_runtime.data.helper_process import HelperProcess
from evsys_verifiers_std.configurable import Configured
from evsys_verifiers_std.expected_answer import expected_texts
from evsys_verifiers_std.extras import require

__all__ = ["MathEqual"]

_process = HelperProcess(["-P", "-m", "evsys_verifiers_std.math_process"], "compares mathematics")


@attrs.frozen(kw_only=True)
class MathEqualParams:
    """How it is compared."""

    decimals: int = option(6, "Decimals to which numbers are rounded that aren't exact.", ge=0)
    timeout_seconds: float = option(
        10.0,
        "Longest time of one comparison; beyond it the rollout has no score.",
        gt=0,
    )


class MathEqual(Configured):
    r"""1.0 when the answer is mathematically equal to what is expected: `1/2`, `\frac{1}{2}` and `0.5` are.

    The answer is what is in `\boxed{}`, else in LaTeX marks, else the last number. Reading and comparing is math-verify's
    (on SymPy), in a process of its own stopped at the deadline.
    """

    name: ClassVar[str] = "math_equal"
    blocking: ClassVar[bool] = True
    Config = MathEqualParams

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("math_verify", "math", verifier=self.name)

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        """Compare `model_output` with `expected`: LaTeX or a number, or a list of which one counts.

        Raises:
            TimeoutError: it took too long.
            ValueError: what is expected can't be read.
        """
        settings: MathEqualParams = self._settings(params)
        return float(
            any(
                _are_equal(text, settings, text=model_output, decimals=settings.decimals)
                for text in expected_texts(expected)
            )
        )

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A right answer: the first of what is expected, in a box unless it brings one, or LaTeX marks, of its own."""
        text = expected_texts(expected)[0].strip()
        marked = any(mark in text for mark in ("$", "\\boxed", "\\(", "\\["))
        return text if marked else f"\\boxed{{{text}}}"

    def check(self, expected: Any) -> None:
        """Refuse an expectation that can't be read as mathematics.

        Raises:
            ValueError: says which.
        """
        for text in expected_texts(expected):
            _are_equal(text, self.config)


def _are_equal(expected: str, settings: MathEqualParams, **what: Any) -> bool:
    answer = _process.ask({"expected": expected, **what}, settings.timeout_seconds, "the comparison")
    if "refused" in answer:
        raise ValueError(answer["refused"])
    return bool(answer["equal"])
