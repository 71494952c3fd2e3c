"""Verifiers that keep their contract, each written in another way."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar

import attrs
import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator, model_validator

from evsys import option
from evsys.protocols import Verifier
from evsys.types import NoScore, Score


def function(model_output, expected, params):
    return 1.0 if model_output.strip() == str(expected) else 0.0


function.reward_range = (0, 1)


async def async_function(model_output, expected, params):
    await asyncio.sleep(0)
    return model_output == expected


async_function.reward_range = (0.0, 1.0)


def sees_the_rollout(model_output, expected, params, rollout):
    return len(rollout.messages) / (1 + len(rollout.messages))


sees_the_rollout.reward_range = [0.0, 1.0]


def _scaled(model_output, expected, params, scale=1.0):
    return scale * (str(expected) in model_output)


a_partial = partial(_scaled, scale=2.0)
a_partial.reward_range = (0.0, 2.0)


@attrs.frozen(kw_only=True)
class AttrsPlugin:
    """Its own Config."""

    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    weight: float = option(0.5, "of the reward", ge=0, le=1)
    _hidden: str = attrs.field(default="x", alias="hidden")
    api_key: str = attrs.field(default="", repr=False)

    def __call__(self, model_output, expected, params):
        return self.weight if model_output else -self.weight


@dataclass(frozen=True)
class DataclassPlugin:
    """Its own Config, and needs a param."""

    conformance: ClassVar = {"params": {"words": ["a", "b"]}}
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    words: list[str]
    token: str = field(default="", repr=False)

    async def __call__(self, model_output, expected, params):
        return Score(value=float(any(word in model_output for word in self.words)), components={"n": 1.0})


class PydanticConfig:
    name = "PydanticConfig"
    reward_range = (0.0, 1.0)

    class Config(BaseModel):
        model_config = ConfigDict(extra="forbid")
        strict: bool = True
        password: SecretStr = SecretStr("")

    def __init__(self, **kw):
        self._config = self.Config(**kw)

    def __call__(self, model_output, expected, params):
        return np.float32(model_output == expected and self._config.strict)


class ReadsMore:
    """Its Config takes values in more forms than its schema tells of."""

    reward_range = (0.0, 1.0)

    class Config(BaseModel):
        class Rubric(BaseModel):
            words: list[str] = []

            @model_validator(mode="before")
            @classmethod
            def from_text(cls, value):
                return {"words": value.split()} if isinstance(value, str) else value

        words: list[str] = []
        limit: Annotated[
            int, BeforeValidator(lambda value: int(value) if isinstance(value, str) else value)
        ] = 3
        sizes: list[Annotated[int, BeforeValidator(lambda value: value or 1)]] = [1]
        rubric: Rubric = Rubric()

        @field_validator("words", mode="before")
        @classmethod
        def split(cls, value):
            return value.split(",") if isinstance(value, str) else value

    def __init__(self, **fields):
        self.fields = fields

    def __call__(self, model_output, expected, params):
        return float(model_output == expected)


class ReadsOldNames:
    """A Config whose fields had other names once."""

    reward_range = (0.0, 1.0)

    class Config(BaseModel):
        limit: int = 3

        @model_validator(mode="before")
        @classmethod
        def renamed(cls, value):
            if isinstance(value, dict) and "maximum" in value:
                value["limit"] = value.pop("maximum")
            return {key: 3 if item is None else item for key, item in value.items()}

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, model_output, expected, params):
        return float(model_output == expected)


class JudgesJson:
    """Can't judge most of what the suite writes, and says what it can."""

    conformance: ClassVar = {"expected": {"answer": 42}, "answers": ['answer: {"answer": 42}']}
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        found = model_output.partition("answer: ")[2]
        return float(json.loads(found) == expected) if found.startswith('{"') else NoScore(reason="no answer")


class InheritsTheProtocol(Verifier):
    __slots__ = ()
    protocol = 1
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        return NoScore(reason="empty") if not model_output else 1


class IsMoody:
    deterministic = False
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        return random.random()


class NestedConfig:
    conformance: ClassVar = {"params": {"rubric": {"points": 3}}}
    reward_range = (0.0, float("inf"))

    @attrs.frozen(kw_only=True)
    class Config:
        @attrs.frozen(kw_only=True)
        class Rubric:
            points: int = attrs.field(validator=attrs.validators.ge(1))
            name: str | None = None

        rubric: Rubric
        more: tuple[Rubric, ...] = ()

    def __init__(self, *, rubric, more):
        self.rubric = rubric

    @staticmethod
    def __call__(model_output, expected, params):
        return len(model_output)


class NeedsAService:
    """Says so, and its methods are left alone without one."""

    conformance: ClassVar = {"service": True}
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        raise ConnectionError("nobody is there")
