"""What a verifier keeps: any text gets a finite reward in the range that is declared."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Message, NoScore, Rollout, Score
from evsys_conformance.checks.plugin import PROFILE, PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.running import finished

__all__ = ["VerifierConformance"]

_TEXTS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["", " \n", "42", "a" * 5000, "\x00", "{", "<tool_call>{}</tool_call>", "é\u2028🙂", "[[]]"]
    ),
)
_ODD = ("", "42", "the answer is 42", "{", "\x00\u2028🙂")


class VerifierConformance(PluginConformance):
    """Checks of the kind `verifier`. Override `expected` for what its tasks expect."""

    kind: ClassVar[str | None] = "verifier"

    @pytest.fixture
    def expected(self, facts: Mapping[str, Any]) -> Any:
        """What a task expects."""
        return facts.get("expected", "42")

    @pytest.fixture
    def judge(
        self, plugin: Any, params: Mapping[str, Any], expected: Any
    ) -> Callable[[str], Score | NoScore]:
        """Judges a text as evsys does."""
        wants_rollout = "rollout" in inspect.signature(plugin).parameters

        def judge(text: str) -> Score | NoScore:
            further = {}
            if wants_rollout:
                answer = Message(role="assistant", content=text)
                further = {"rollout": Rollout(task_id="t", sample_index=0, messages=(answer,), output=text)}
            said = finished(plugin(text, expected, params, **further))
            if isinstance(said, Score | NoScore):
                return said
            assert isinstance(said, int | float), f"gave {said!r}, which is no number, Score or NoScore"
            return Score(value=float(said))

        return judge

    @check()
    def test_any_text_gets_a_finite_reward(self, judge: Callable[[str], Score | NoScore]) -> None:
        """Whatever a model writes, the verifier judges it and doesn't fail."""

        @PROFILE
        @given(_TEXTS)
        def draw(text: str) -> None:
            said = judge(text)
            if isinstance(said, Score):
                wrong = [v for v in (said.value, *said.components.values()) if not math.isfinite(v)]
                assert wrong == [], f"the reward of {text!r} isn't finite"

        draw()

    @check()
    def test_same_text_gets_the_same_reward(
        self, judge: Callable[[str], Score | NoScore], plugin: Any
    ) -> None:
        """Unless it declares `deterministic = False`, it judges a text as it did before."""
        if getattr(plugin, "deterministic", True) is False:
            pytest.skip("declares that it isn't deterministic")
        for text in _ODD:
            assert {_value(judge(text)) for _ in range(4)} == {_value(judge(text))}

    @check()
    def test_reward_range_is_declared(self, loaded: Any) -> None:
        """`reward_range = (low, high)` says between which rewards it stays."""
        declared = getattr(loaded, "reward_range", None)
        assert declared is not None, "declare it: reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)"
        low, high = declared
        assert low <= high

    @check()
    def test_reward_stays_in_its_range(self, judge: Callable[[str], Score | NoScore], loaded: Any) -> None:
        """No text gets a reward outside the declared range."""
        if getattr(loaded, "reward_range", None) is None:
            pytest.skip("declares no range, as test_reward_range_is_declared tells")
        low, high = loaded.reward_range

        @PROFILE
        @given(_TEXTS)
        def draw(text: str) -> None:
            said = judge(text)
            if isinstance(said, Score) and math.isfinite(said.value):
                assert low <= said.value <= high, f"the reward of {text!r}"

        draw()


def _value(said: Score | NoScore) -> float | str:
    return repr(said.value) if isinstance(said, Score) else said.reason
