"""The verifier `code_tests`: whether a program that the model wrote passes tests, in a sandbox."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys_verifiers_std.configurable import Configured
from evsys_verifiers_std.tests_given import Given, given_tests

if TYPE_CHECKING:
    from evsys.types import NoScore, Score
    from evsys_verifiers_std.code_runs import Bounds, Part

__all__ = ["CodeTests"]

MOST_COMPONENTS = 32
"""Beyond so many parts only the share that passed is logged."""

_MOST_ERRORS = 5
_UNSANDBOXED = (
    "code_tests runs the model's code without a sandbox, as allow_unsandboxed lets it: the code can do what evsys can do, and "
    "write its own rewards"
)
_FENCE = re.compile(r"(?P<mark>`{3,}|~{3,})(?P<language>[^`]*)")
_PYTHON = frozenset({"", "py", "python", "python3"})


@attrs.frozen(kw_only=True)
class CodeTestsParams:
    """The tests, and what the code may use."""

    language: str = option("python", "Programming language of the code.", choices=("python",))
    tests: Any = option(
        None,
        "The tests; by default the task's `expected` has them. Python code, {input, output}, {args, kwargs, returns}, "
        "or a list of those.",
    )
    entry_point: str | None = option(
        None, "The tested function, or `Class.method` of an object created without arguments."
    )
    setup: str = option("", "Python code that runs before the tests, in their process: imports, helpers.")
    prefix: str = option("", "Python code in front of the model's, in its process.")
    partial: bool = option(True, "Give the share of tests that pass; otherwise all of them or nothing.")
    unfenced: bool = option(True, "An answer without a code block is code as a whole.")
    timeout_seconds: float = option(
        10.0, "Longest time of one answer's tests together; starting a sandbox doesn't count.", gt=0, le=300
    )
    memory_mb: int = option(512, "Most memory of the code, in MiB.", ge=64, le=1 << 20)
    file_mb: int = option(16, "Longest file that the code may write, in MiB.", ge=0, le=1 << 20)
    allow_unsandboxed: bool = option(
        False,
        "If this machine has no sandbox, run the code without one, with the rights of evsys.",
    )


class CodeTests(Configured):
    """The share of tests that the model's code passes. Code that crashes, hangs or takes too much passes none of
    the rest.

    The last code block of the answer is tested. It runs in a bubblewrap sandbox of its own, and the tests in
    another: they exchange plain values only, so code can't write its own verdict. A sandbox that fails gives no
    score.
    """

    name: ClassVar[str] = "code_tests"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"unfenced": False, "allow_unsandboxed": True},
        "expected": {"tests": [{"args": [2], "returns": 4}], "entry_point": "double"},
    }
    Config = CodeTestsParams

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.warnings: tuple[str, ...] = ()
        self._sandboxed = _has_sandbox(self.config)
        if not self._sandboxed:
            self.warnings = (_UNSANDBOXED,)

    async def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> Score | NoScore:
        """Wait for `judged` in a thread of its own."""
        import asyncio  # here, so that `evsys validate` doesn't wait for it

        from evsys_verifiers_std.code_runs import pool

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool(), self.judged, model_output, expected, params)

    def judged(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> Score | NoScore:
        """Test the code in `model_output` by `params.tests`, else by `expected`.

        Raises:
            ValueError: there are no usable tests.
        """
        from evsys.types import NoScore, Score
        from evsys_verifiers_std.code_runs import SandboxError

        settings: CodeTestsParams = self._settings(params)
        given = given_tests(settings, expected)
        facts = {"sandboxed": self._sandboxed}
        code = extract_code(model_output, unfenced=settings.unfenced)
        if code is None:
            return Score(value=0.0, metadata={**facts, "error": "the answer has no block of Python code"})
        try:
            parts = _test_code(
                f"{settings.prefix}\n{code}" if settings.prefix else code, given, self._bounds(settings)
            )
        except SandboxError as exc:
            return NoScore(reason=f"verifier 'code_tests': {exc}", retryable=True)
        return _score(parts, facts, partial=settings.partial)

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str | None:
        """The task's own `solution`, in a code block; None where it has none."""
        solution = given_tests(self._settings(params), expected).solution
        return None if solution is None else f"~~~~python\n{solution}\n~~~~"

    def check(self, expected: Any) -> None:
        """Refuse tests that can't be run.

        Raises:
            ValueError: says what is wrong with which.
        """
        given_tests(self.config, expected)

    def _bounds(self, settings: CodeTestsParams) -> Bounds:
        from evsys_verifiers_std.code_runs import Bounds

        return Bounds(
            timeout_seconds=settings.timeout_seconds,
            memory_mb=settings.memory_mb,
            file_mb=settings.file_mb,
            sandboxed=self._sandboxed,
        )


def extract_code(text: str, *, unfenced: bool) -> str | None:
    """The last block of Python code in an answer; None where there is none."""
    found: str | None = None
    block: list[str] | None = None
    mark = language = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        stripped = line.strip()
        if block is None:
            if fence := _FENCE.fullmatch(stripped):
                block, mark = [], fence["mark"]
                language = (fence["language"].split() or [""])[0].lower()
        elif len(stripped) >= len(mark) and not stripped.strip(mark[0]):
            found, block = ("\n".join(block) if language in _PYTHON else found), None
        else:
            block.append(line)
    if found is not None:
        return textwrap.dedent(found)
    return text if unfenced and text.strip() else None


def _has_sandbox(settings: CodeTestsParams) -> bool:
    from evsys.errors import PluginLoadError
    from evsys_verifiers_std.sandbox import no_sandbox

    if os.name != "posix":
        raise PluginLoadError("verifier 'code_tests' needs Linux or another POSIX system", kind="verifier")
    reason = no_sandbox()
    if reason is not None and not settings.allow_unsandboxed:
        raise PluginLoadError(
            f"verifier 'code_tests' runs the model's code in a sandbox, and this machine has none: {reason}",
            hint="install bubblewrap (Debian, Ubuntu: apt install bubblewrap) and let it use user namespaces, or set "
            "allow_unsandboxed: true in its params, which lets the code do what evsys can do",
            kind="verifier",
        )
    return reason is None


def _test_code(code: str, given: Given, bounds: Bounds) -> list[Part]:
    """Every part of every test, programs after functions."""
    from evsys_verifiers_std.code_runs import Part, TimeLeft, run_program, run_tests

    parts: list[Part] = []
    left = TimeLeft(bounds.timeout_seconds)
    calls = [place for place, test in enumerate(given.tests) if not _is_program(test)]
    if calls:
        found = run_tests(
            code,
            [given.tests[place] for place in calls],
            bounds,
            left,
            setup=given.setup,
            entry_point=given.entry_point,
        )
        parts += [attrs.evolve(part, test=calls[part.test]) for part in found]
    for place, test in enumerate(given.tests):
        if _is_program(test):
            output, error = run_program(code, test["input"], bounds, left)
            if error is None and _lines(output) != _lines(test["output"]):
                error = f"it wrote {output[:200]!r}"
            parts.append(Part(test=place, name="", error=error))
    return sorted(parts, key=lambda part: part.test)


def _is_program(test: Any) -> bool:
    return isinstance(test, Mapping) and "input" in test


def _lines(text: str) -> list[str]:
    """Output as it is compared: spaces at the end of lines, and empty lines at the end, don't matter."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _score(parts: list[Part], facts: Mapping[str, Any], *, partial: bool) -> Score:
    from evsys.types import Score

    passed = sum(part.error is None for part in parts)
    share = passed / len(parts)
    metadata = {**facts, "passed": passed, "tests": len(parts)}
    errors = {_label(part): part.error for part in parts if part.error is not None}
    if errors:
        metadata["errors"] = dict(list(errors.items())[:_MOST_ERRORS])
    few = {_label(part): float(part.error is None) for part in parts}
    return Score(
        value=share if partial else float(passed == len(parts)),
        components=few if len(parts) <= MOST_COMPONENTS else {"passed": share},
        metadata=metadata,
    )


def _label(part: Part) -> str:
    return f"test_{part.test + 1}" + (f".{part.name}" if part.name else "")
