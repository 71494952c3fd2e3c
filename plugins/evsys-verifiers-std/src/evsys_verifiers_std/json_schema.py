"""The verifier `json_schema`: whether an answer is JSON that fits a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import Score
from evsys_runtime.data.helper_process import HelperProcess
from evsys_verifiers_std.configurable import Configured
from evsys_verifiers_std.extras import require

__all__ = ["JsonSchema"]

_LONGEST_ERROR = 300

_process = HelperProcess(["-P", "-m", "evsys_verifiers_std.json_process"], "validates JSON")


@attrs.frozen(kw_only=True)
class JsonSchemaParams:
    """The part of an answer to validate, and the schema."""

    schema: Mapping[str, Any] | None = option(
        None,
        "The JSON Schema; by default the task's `expected` is one. Draft 2020-12 unless it names another.",
    )
    fenced: bool = option(True, "Allow the answer to be in a Markdown code fence, with nothing outside.")
    timeout_seconds: float = option(
        5.0,
        "Longest time of one validation; beyond it the rollout has no score.",
        gt=0,
    )


class JsonSchema(Configured):
    """1.0 when the answer is JSON and nothing else, and fits the schema. Why it doesn't is in the score's metadata.

    Validation runs in a process of its own, so that a pattern that backtracks without end can be stopped. References to
    elsewhere are refused: nothing is fetched.
    """

    name: ClassVar[str] = "json_schema"
    blocking: ClassVar[bool] = True
    conformance: ClassVar[Mapping[str, Any]] = {
        "expected": {"type": "array", "items": {"type": "string", "pattern": "^a"}}
    }
    Config = JsonSchemaParams

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("jsonschema", "json", verifier=self.name)

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> Score:
        """Validate `model_output` against `params.schema`, else against `expected`.

        Raises:
            TimeoutError: it took too long.
            ValueError: there is no usable schema.
        """
        settings: JsonSchemaParams = self._settings(params)
        error = _find_fault(settings, expected, text=model_output, fenced=settings.fenced)
        if error is None:
            return Score(value=1.0)
        return Score(value=0.0, metadata={"error": error[:_LONGEST_ERROR]})

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str | None:
        """A right answer where the schema itself shows one: its `const`, the first of `examples` or `enum`, or `default`."""
        settings: JsonSchemaParams = self._settings(params)
        schema = settings.schema if settings.schema is not None else expected
        shown = _examples_of(schema) if isinstance(schema, Mapping) else []
        return json.dumps(shown[0], ensure_ascii=False) if shown else None

    def counterexample(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A wrong answer: no JSON."""
        return "{"

    def check(self, expected: Any) -> None:
        """Refuse an invalid JSON Schema, or one that refers to a schema outside it.

        Raises:
            ValueError: says what is wrong and where in the schema.
        """
        _find_fault(self.config, expected)


def _examples_of(schema: Mapping[str, Any]) -> list[Any]:
    shown = [schema["const"]] if "const" in schema else []
    for name in ("examples", "enum"):
        values = schema.get(name)
        shown += values[:1] if isinstance(values, list) else []
    return shown + ([schema["default"]] if "default" in schema else [])


def _find_fault(settings: JsonSchemaParams, expected: Any, **what: Any) -> str | None:
    """The fault of a text.

    Raises:
        ValueError: the schema can't be used.
    """
    schema = settings.schema if settings.schema is not None else expected
    if not isinstance(schema, Mapping):
        message = "there is no schema: give it as `params.schema`, or as the task's `expected`"
        raise ValueError(message)  # noqa: TRY004 - every unusable expectation is a ValueError
    answer = _process.ask({"schema": dict(schema), **what}, settings.timeout_seconds, "the validation")
    if "refused" in answer:
        raise ValueError(answer["refused"])
    error: str | None = answer["error"]
    return error
