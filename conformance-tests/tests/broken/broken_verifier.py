"""Verifiers with one fault each; those that any kind of plugin may have are here too."""

import contextlib
import socket
from itertools import count
from typing import ClassVar

import attrs
from pydantic import BaseModel

from evsys import option
from evsys.types import NoScore


class Right:
    """Keeps the contract; the base of all that follow."""

    reward_range = (0.0, 1.0)

    def __init__(self, **fields):
        self.fields = fields

    def __call__(self, model_output, expected, params):
        return float(model_output == expected)

    def __repr__(self):
        return type(self).__name__


class SaysAnotherName(Right):
    name = "another"


class PhonesHome(Right):
    def __init__(self, **fields):
        super().__init__(**fields)
        with contextlib.suppress(OSError):
            socket.create_connection(("192.0.2.1", 80), timeout=0.01)


class SaysOddThings(Right):
    conformance: ClassVar = {"parameters": {}}


class CannotBeMade(Right):
    def __init__(self):
        raise RuntimeError("not today")


class NoJsonSchema(Right):
    @attrs.frozen(kw_only=True)
    class Config:
        limit: float = attrs.field(default=float("inf"), metadata={"non_finite": True})


class RefusesWhatIsAllowed(Right):
    @attrs.frozen(kw_only=True)
    class Config:
        size: int = attrs.field(
            default=5000, validator=attrs.validators.not_(attrs.validators.in_(range(-999, 999)))
        )


class AcceptsWhatIsForbidden(Right):
    class Config(BaseModel, extra="forbid"):
        level: int = 1

        @classmethod
        def model_json_schema(cls, *args, **options):
            schema = super().model_json_schema(*args, **options)
            schema["properties"]["level"]["maximum"] = 3
            return schema


class TakesAnyKey(Right):
    class Config(BaseModel, extra="allow"):
        level: int = 1


class GrowsInJson(Right):
    @attrs.frozen(kw_only=True)
    class Config:
        label: str = attrs.field(default="x", converter=lambda text: f"{text}!")


class ShowsItsKey(Right):
    @attrs.frozen(kw_only=True)
    class Config:
        api_key: str = option("", "of the judge")


class ConfigIsNone(Right):
    class Config:
        """No attrs class, no dataclass, no pydantic model."""

        level = 1


class SchemaFails(Right):
    class Config(BaseModel, extra="forbid"):
        level: int = 1

        @classmethod
        def model_json_schema(cls, *args, **options):
            raise RecursionError("it goes on and on")


class NeedsAnother(Right):
    def __call__(self, model_output, expected, params):
        return float(model_output == expected["answer"])


class NeverScores(Right):
    conformance: ClassVar = {"expected": {"answer": "42"}}

    def __call__(self, model_output, expected, params):
        return NoScore(reason="the answer is not valid JSON")


class NotANumber(Right):
    def __call__(self, model_output, expected, params):
        return 1.0 if model_output else float("nan")


class Fickle(Right):
    def __init__(self):
        self._calls = count()

    def __call__(self, model_output, expected, params):
        return float(next(self._calls) % 2)


class MisspellsAMember(Right):
    determinstic = False


class NoRange(Right):
    reward_range = None


class LeavesItsRange(Right):
    def __call__(self, model_output, expected, params):
        return 1.5 if len(model_output) > 10 else 1.0


class Exits(Right):
    def __call__(self, model_output, expected, params):
        raise SystemExit(1)
