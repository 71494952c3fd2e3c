"""The standard verifiers. Each gives 1.0 or 0.0, and raises on an expectation that it can't judge by.

A verifier is built from its params; what a call passes as `params` wins over them for that call. `check(expected)` says
before any model is asked whether a task's expectation can be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime.data.bounded_regex import compile_pattern, search
from evsys_verifiers_std.configurable import Configured
from evsys_verifiers_std.expected_answer import expected_texts
from evsys_verifiers_std.tool_calls import Call, calls_in_text, calls_of_rollout, expected_calls, matches

if TYPE_CHECKING:
    from evsys.types import Rollout

__all__ = ["Contains", "ExactMatch", "RegexMatch", "ToolCallsMatch"]


@attrs.frozen(kw_only=True)
class ExactMatchParams:
    """How two texts are compared."""

    strip: bool = option(True, "Leave out whitespace at both ends.")
    case_sensitive: bool = option(True, "Distinguish upper and lower case.")


class ExactMatch(Configured):
    """1.0 when the answer is the expected text, or one of several."""

    name: ClassVar[str] = "exact_match"
    Config = ExactMatchParams

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        """Compare `model_output` with `expected`: a text, a number, or a list of those."""
        settings = self._settings(params)

        def plain(text: str) -> str:
            text = text.strip() if settings.strip else text
            return text if settings.case_sensitive else text.casefold()

        return float(plain(model_output) in [plain(text) for text in expected_texts(expected)])

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A right answer: the first expected text."""
        return expected_texts(expected)[0]

    def check(self, expected: Any) -> None:
        """Refuse an expectation that can't be compared with.

        Raises:
            ValueError: says what is wrong.
        """
        expected_texts(expected)


@attrs.frozen(kw_only=True)
class ContainsParams:
    """The text to find."""

    require: Literal["all", "any"] = option(
        "all", "With several texts: all of them, or any.", choices=("all", "any")
    )
    case_sensitive: bool = option(True, "Distinguish upper and lower case.")
    word_boundary: bool = option(
        False, "Find the text as whole words only: not `safe` in `unsafe`, and not `12` in `112` or `12.5`."
    )


def _has_words(text: str, wanted: str) -> bool:
    """Whether `wanted` is in `text` with no letter or digit next to it that would make it part of a longer word or number."""
    before = r"(?<!\w)(?<!\d[.,])" if wanted[0].isalnum() or wanted[0] == "_" else ""
    after = r"(?!\w)(?![.,]\d)" if wanted[-1].isalnum() or wanted[-1] == "_" else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


class Contains(Configured):
    """1.0 when the answer contains the expected text, or all (any) of several."""

    name: ClassVar[str] = "contains"
    Config = ContainsParams

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        """Look for `expected`, a text, a number, or a list of those, in `model_output`."""
        settings = self._settings(params)
        self.check(expected)
        wanted = expected_texts(expected)
        if not settings.case_sensitive:
            model_output, wanted = model_output.casefold(), [text.casefold() for text in wanted]
        has = _has_words if settings.word_boundary else str.__contains__
        found = [has(model_output, text) for text in wanted]
        return float(all(found) if settings.require == "all" else any(found))

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A right answer: all expected texts."""
        return "\n".join(expected_texts(expected))

    def check(self, expected: Any) -> None:
        """Refuse an expectation that every answer contains.

        Raises:
            ValueError: says what is wrong.
        """
        if "" in expected_texts(expected):
            raise ValueError("`expected` holds an empty text, which every answer contains")


def _usable(_params: Any, _attribute: Any, pattern: str | None) -> None:
    if pattern is not None:
        compile_pattern(pattern)


@attrs.frozen(kw_only=True)
class RegexMatchParams:
    """How the pattern is applied."""

    pattern: str | None = attrs.field(
        default=None,
        metadata={"help": "The regular expression; by default the task's `expected` is one."},
        validator=_usable,
    )
    full: bool = option(False, "Match the whole answer instead of a part of it.")
    ignore_case: bool = option(False, "Ignore case.")
    dot_all: bool = option(False, "`.` matches newlines too.")
    multiline: bool = option(False, "`^` and `$` match at each line.")
    strip: bool = option(True, "Leave out whitespace at both ends of the answer.")
    timeout_seconds: float = option(
        2.0,
        "Longest time of one match; beyond it the rollout has no score.",
        gt=0,
    )

    @property
    def flags(self) -> int:
        """The flags of Python's `re`."""
        named = {re.IGNORECASE: self.ignore_case, re.DOTALL: self.dot_all, re.MULTILINE: self.multiline}
        return sum(int(flag) for flag, on in named.items() if on)


class RegexMatch(Configured):
    """1.0 when a regular expression (Python's `re`) matches the answer.

    Matching runs in a process of its own, so that a pattern that backtracks without end can be stopped.
    """

    name: ClassVar[str] = "regex_match"
    blocking: ClassVar[bool] = True
    Config = RegexMatchParams

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        """Match `params.pattern`, else `expected`, against `model_output`.

        Raises:
            TimeoutError: matching took longer than `timeout_seconds`.
            ValueError: there is no usable pattern.
        """
        settings = self._settings(params)
        text = model_output.strip() if settings.strip else model_output
        pattern = _pattern(settings, expected)
        return float(
            search(
                pattern, settings.flags, text, full=settings.full, timeout_seconds=settings.timeout_seconds
            )
        )

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> None:
        """None: a pattern doesn't show what it matches."""
        return

    def check(self, expected: Any) -> None:
        """Refuse a pattern that can't be compiled, or none.

        Raises:
            ValueError: says what is wrong and where in the pattern.
        """
        _pattern(self.config, expected)


def _pattern(settings: RegexMatchParams, expected: Any) -> str:
    pattern = settings.pattern if settings.pattern is not None else expected
    if not isinstance(pattern, str):
        message = "there is no pattern: give it as `params.pattern`, or as the task's `expected`"
        raise ValueError(message)  # noqa: TRY004 - every unusable expectation is a ValueError
    compile_pattern(pattern, settings.flags)
    return pattern


@attrs.frozen(kw_only=True)
class ToolCallsMatchParams:
    """The compared parts of a call."""

    ordered: bool = option(False, "The calls must come in the expected order.")
    arguments: Literal["exact", "subset", "ignore"] = option(
        "exact",
        "Arguments must be equal, include the expected ones, or don't matter.",
        choices=("exact", "subset", "ignore"),
    )
    allow_extra: bool = option(False, "Ignore calls other than the expected ones.")


class ToolCallsMatch(Configured):
    """1.0 when the model made exactly the expected tool calls.

    Calls come from the rollout; where it has none, `<tool_call>` blocks or bare JSON in the answer's text are read.
    """

    name: ClassVar[str] = "tool_calls_match"
    conformance: ClassVar[Mapping[str, Any]] = {"expected": [{"name": "send", "arguments": {"to": "bob"}}]}
    Config = ToolCallsMatchParams

    def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout | None = None
    ) -> float:
        """Compare with `expected`: one `{name, arguments}` or a list of them; an empty list expects no call."""
        settings = self._settings(params)
        wanted = expected_calls(expected)
        made: list[Call] = calls_of_rollout(rollout) if rollout is not None else []
        made = made or calls_in_text(model_output)
        return float(
            matches(
                made,
                wanted,
                ordered=settings.ordered,
                arguments=settings.arguments,
                allow_extra=settings.allow_extra,
            )
        )

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A right answer: the expected calls as JSON; some text where none is expected."""
        calls = [call._asdict() for call in expected_calls(expected)]
        return json.dumps(calls, ensure_ascii=False) if calls else "No tool is needed."

    def counterexample(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A wrong answer: no call where one is expected, else a call."""
        return "" if expected_calls(expected) else json.dumps([{"name": "unwanted", "arguments": {}}])

    def check(self, expected: Any) -> None:
        """Refuse an expectation that is not a list of calls.

        Raises:
            ValueError: says what is wrong.
        """
        expected_calls(expected)
