"""The constraints of attrs validators as JSON Schema.

The validators' classes are private, so they are recognised by name; a test for each of them fails when attrs
changes one.
"""

from __future__ import annotations

import re
from typing import Any

from evsys._plugins.plain import unstructure
from evsys._plugins.shape import Shape, shape_of

__all__ = ["constrain"]

_BOUNDS = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}
_LENGTHS = {"string": "Length", "sequence": "Items", "mapping": "Properties"}
_ANCHORS = {"fullmatch": "^(?:{})$", "match": "^(?:{})", "search": "{}"}


def constrain(schema: dict[str, Any], validator: Any, annotation: Any) -> None:  # noqa: C901 - a case for each validator of attrs
    """Add to the schema of `annotation` what `validator` asks for. Validators of other makes are left to themselves."""
    match type(validator).__name__:
        case "_AndValidator":
            for each in validator._validators:  # noqa: SLF001 - there is no public way to look inside
                constrain(schema, each, annotation)
        case "_OptionalValidator":
            constrain(schema, validator.validator, annotation)
            if "enum" in schema and any(shape.kind == "null" for shape in _members(annotation)):
                schema["enum"].append(None)
        case "_NumberValidator":
            schema[_BOUNDS[validator.compare_op]] = validator.bound
        case "_InValidator" if not isinstance(validator.options, str):
            schema["enum"] = [unstructure(option) for option in validator.options]
        case "_MatchesReValidator" if not validator.pattern.flags & ~re.UNICODE:
            schema["pattern"] = _ANCHORS[validator.match_func.__name__].format(validator.pattern.pattern)
        case "_MinLengthValidator":
            schema |= {f"min{word}": validator.min_length for word in _words(annotation)}
        case "_MaxLengthValidator":
            schema |= {f"max{word}": validator.max_length for word in _words(annotation)}
        case "_DeepIterable":
            schema["items"] = dict(schema.get("items", {}))
            constrain(schema, validator.iterable_validator, annotation)
            constrain(schema["items"], validator.member_validator, _inside(annotation))
        case "_DeepMapping":
            schema["additionalProperties"] = dict(schema.get("additionalProperties", {}))
            constrain(schema, validator.mapping_validator, annotation)
            constrain(schema["additionalProperties"], validator.value_validator, _inside(annotation))


def _words(annotation: Any) -> list[str]:
    return [_LENGTHS[shape.kind] for shape in _members(annotation) if shape.kind in _LENGTHS]


def _members(annotation: Any) -> list[Shape]:
    shape = shape_of(annotation)
    return [shape_of(part) for part in shape.parts] if shape.kind == "union" else [shape]


def _inside(annotation: Any) -> Any:
    insides = [shape.parts[-1] for shape in _members(annotation) if shape.kind in {"sequence", "mapping"}]
    return insides[0] if insides else Any
