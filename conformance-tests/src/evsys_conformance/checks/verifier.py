"""The contract of a verifier: any text gets a finite reward in the declared range."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from evsys.optional import declared
from evsys.types import Message, NoScore, Rollout, Score
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.dialect import LETTERS
from evsys_conformance.drawing import for_each
from evsys_conformance.findings import Words, as_number, breach, require, short_text
from evsys_conformance.places import describe_error
from evsys_conformance.running import run_to_end

__all__ = ["VerifierConformance"]

type Judge = Callable[[str], Score | NoScore]
type Attempt = Callable[[str], Score | NoScore | None]

_TEXTS = st.one_of(
    st.text(LETTERS, max_size=80),
    st.sampled_from(
        ["", " \n", "42", "a" * 5000, "\x00", "{", "<tool_call>{}</tool_call>", "é\u2028🙂", "[[]]"]
    ),
)
_ODD = ("", "42", "the answer is 42", "{", "\x00\u2028🙂")
_GIVES = "a finite number, a Score or a NoScore"
_SAYS = "conformance = {'expected': ...}, and a subclass of the suite's by its fixture `expected`"
_DECLARE = "reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0); for a function, function.reward_range = (0.0, 1.0)"


class VerifierConformance(PluginConformance):
    """Checks of the kind `verifier`. Override `expected` for what its tasks expect."""

    kind: ClassVar[str | None] = "verifier"
    words: ClassVar[Mapping[str, str]] = {
        "expected": 'what a task expects; by default `"42"`',
        "answers": "texts that a model could write, at least one of which gets a score",
    }

    @pytest.fixture
    def expected(self, facts: Mapping[str, Any]) -> Any:
        """The expected answer of a task."""
        return facts.get("expected", "42")

    @pytest.fixture
    def answers(self, facts: Mapping[str, Any], expected: Any) -> list[str]:
        """Texts that a model could write, at least one of which gets a score."""
        as_text = expected if isinstance(expected, str) else json.dumps(expected, default=str)
        return [*facts.get("answers", ()), as_text, *_ODD]

    @pytest.fixture
    def judge(self, plugin: Any, params: Mapping[str, Any], expected: Any) -> Judge:
        """Judges a text as evsys does."""
        wants_rollout = "rollout" in inspect.signature(plugin).parameters

        def judge(text: str) -> Score | NoScore:
            further = {}
            if wants_rollout:
                answer = Message(role="assistant", content=text)
                further = {"rollout": Rollout(task_id="t", sample_index=0, messages=(answer,), output=text)}
            try:
                said = run_to_end(plugin(text, expected, params, **further))
            except Exception as exc:
                breach(
                    f"judging {short_text(text)} it fails: {describe_error(exc)}",
                    wanted=f"{_GIVES}, for any text of a model. The task expected {short_text(expected)}: a verifier whose tasks "
                    f"expect something else says so by {_SAYS}",
                )
            if isinstance(said, Score | NoScore):
                return said
            reward = as_number(said)
            if reward is None:
                breach(f"what it gives for {short_text(text)} is not a reward", seen=said, wanted=_GIVES)
            return Score(value=reward)

        return judge

    @pytest.fixture
    def attempt(self, judge: Judge) -> Attempt:
        """Judges a text; None if that fails, which test_any_text_gets_a_finite_reward reports."""

        def attempt(text: str) -> Score | NoScore | None:
            try:
                return judge(text)
            except pytest.fail.Exception:
                return None

        return attempt

    @check()
    def test_any_text_gets_a_finite_reward(self, judge: Judge) -> None:
        """Any text of a model is judged and doesn't fail."""

        def judged(text: str) -> None:
            said = judge(text)
            if isinstance(said, Score):
                for value in (said.value, *said.components.values()):
                    require(
                        math.isfinite(value),
                        f"the reward of {short_text(text)} isn't finite",
                        seen=value,
                        wanted=_GIVES,
                    )

        for text in _ODD:
            judged(text)
        for_each(_TEXTS, judged, of="texts")

    @check()
    def test_same_text_gets_the_same_reward(self, attempt: Attempt, plugin: Any) -> None:
        """Unless it declares `deterministic = False`, it judges a text as it did before."""
        if declared(plugin, "deterministic", True) is False:
            pytest.skip("declares that it isn't deterministic")
        for text in _ODD:
            said = {_value(attempt(text)) for _ in range(5)}
            require(
                len(said) == 1,
                f"judging {short_text(text)} five times, it gives different rewards",
                seen=Words(", ".join(sorted(map(str, said)))),
                wanted="one reward; or the attribute deterministic = False",
            )

    @check(calls=False)
    def test_reward_range_is_declared(self, loaded: Any) -> None:
        """`reward_range = (low, high)` says between which rewards it stays."""
        bounds: Any = declared(loaded, "reward_range")
        require(bounds is not None, "it doesn't say which rewards it gives", wanted=_DECLARE)
        numbers = isinstance(bounds, tuple | list) and all(isinstance(end, int | float) for end in bounds)
        require(
            numbers and len(bounds) == 2 and bounds[0] <= bounds[1],
            "its reward_range is not a range",
            seen=bounds,
            wanted=_DECLARE,
        )

    @check()
    def test_reward_stays_in_its_range(self, attempt: Attempt, loaded: Any) -> None:
        """No text gets a reward outside the declared range."""
        try:
            low, high = loaded.reward_range
        except (AttributeError, TypeError, ValueError):
            pytest.skip("after test_reward_range_is_declared: it declares no range")

        def judged(text: str) -> None:
            said = attempt(text)
            if isinstance(said, Score) and math.isfinite(said.value):
                require(
                    low <= said.value <= high,
                    f"the reward of {short_text(text)} is outside its reward_range",
                    seen=said.value,
                    wanted=f"from {low} to {high}, as it declares",
                )

        for_each(_TEXTS, judged, of="texts")

    @check()
    def test_scores_its_own_examples(
        self, attempt: Attempt, answers: list[str], expected: Any, facts: Mapping[str, Any]
    ) -> None:
        """Of the answers to a task that expects what the plugin says in `expected`, at least one gets a score."""
        said = [attempt(text) for text in answers]
        if None in said:
            pytest.skip("after test_any_text_gets_a_finite_reward: it fails")
        if any(isinstance(one, Score) for one in said):
            return
        reasons = ", ".join(dict.fromkeys(_value(one) for one in said))
        if not facts.keys() & {"expected", "answers"}:
            pytest.skip(
                f"no answer to a task that expects {short_text(expected)} gets a score ({reasons}), and it doesn't say what its "
                "tasks expect: conformance = {'expected': ..., 'answers': [...]}"
            )
        breach(
            f"no answer to its own example gets a score: it expects {short_text(expected)}, and was given {len(said)} answers",
            seen=Words(f"NoScore each time: {reasons}"),
            wanted="a score for what can be judged; if none of these answers can, one that gets a score: "
            "conformance = {'answers': [...]}",
        )


def _value(said: Score | NoScore | None) -> str:
    if said is None:
        return "none: it fails"
    return repr(said.value) if isinstance(said, Score) else said.reason
