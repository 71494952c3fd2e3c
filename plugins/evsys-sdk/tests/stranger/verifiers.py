"""Verifiers: functions, plain and async, with and without the rollout, and classes with each kind of Config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, assert_type

import attrs
from pydantic import BaseModel

from evsys_sdk import NoScore, Rollout, Score, option, register_verifier, register_verifier_fn


@register_verifier("close_to")
def close_to(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    return float(abs(float(model_output) - expected) <= params.get("tolerance", 0.1))


@register_verifier_fn("polite")
async def polite(model_output: str, expected: Any, params: Mapping[str, Any]) -> Score | NoScore:
    if not model_output:
        return NoScore(reason="nothing was said", retryable=True)
    words = {"please": float("please" in model_output), "thanks": float("thanks" in model_output)}
    return Score(value=max(words.values()), components=words)


@register_verifier()
def brief(model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout) -> float:
    assert_type(rollout.usage.completion_tokens, int)
    return 1.0 if len(rollout.turns) < 3 else 0.0


@register_verifier("starts_with")
class StartsWith:
    """Its Config is an attrs class."""

    name: ClassVar[str] = "starts_with"
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @attrs.frozen(kw_only=True)
    class Config:
        """Params."""

        case_sensitive: bool = option(default=True, help="Whether `A` and `a` differ.")
        least: int = option(1, "Fewest characters that must agree.", ge=1, aliases=("min",))

    def __init__(self, case_sensitive: bool, least: int) -> None:
        self.config = self.Config(case_sensitive=case_sensitive, least=least)

    def __call__(self, model_output: str, expected: str, params: Mapping[str, Any]) -> float:
        assert_type(self.config.least, int)
        said = model_output if self.config.case_sensitive else model_output.lower()
        return float(said.startswith(expected) and len(expected) >= self.config.least)


@register_verifier("mentions")
class Mentions:
    """Its Config is a dataclass."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Params."""

        words: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    async def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        words = self.config.words
        return sum(word in model_output for word in words) / len(words) if words else 1.0


@register_verifier("length_between")
class LengthBetween:
    """Its Config is a pydantic model."""

    class Config(BaseModel, extra="forbid"):
        """Params."""

        low: int = 0
        high: int = 100

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout
    ) -> float | NoScore:
        if rollout.error is not None:
            return NoScore(reason=rollout.error)
        return float(self.config.low <= len(model_output) <= self.config.high)


# What is decorated keeps its own type.
assert_type(close_to("1", 1, {}), float)
assert_type(StartsWith(case_sensitive=True, least=1), StartsWith)
