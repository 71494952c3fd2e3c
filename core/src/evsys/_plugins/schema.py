"""JSON Schema (2020-12) of a Config: everything that the converter takes and, as far as schemas go, nothing else."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import Any

import attrs

from evsys._plugins.constraints import constrain
from evsys._plugins.models import is_pydantic, schema_of_model
from evsys._plugins.plain import unstructure
from evsys._plugins.shape import ConfigField, fields_of, shape_of

__all__ = ["schema_for_config"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_METADATA = {key: f"x-evsys-{key}" for key in ("source", "scale", "mutable")}
_METADATA |= {"help": "description", "secret": "writeOnly"}


def schema_for_config(cls: type, owner: str = "") -> dict[str, Any]:
    """The JSON Schema of an attrs class, dataclass or pydantic model.

    Args:
        cls: the class.
        owner: the distribution whose versions its deprecations name.

    Raises:
        PluginContractError: an annotation means nothing in a file; names class and field.
    """
    walker = _Walker(cls, owner)
    schema = {"$schema": _DIALECT, **walker.object(cls)}
    return schema | ({"$defs": walker.defs} if walker.defs else {})


def _naming(field: ConfigField, name: str, owner: str) -> dict[str, Any]:
    """The suffix that distinguishes one name of a field from its others."""
    alias = {"description": f"another name for {field.key!r}", "x-evsys-alias-of": field.key}
    said = {} if name == field.key else alias
    if (since := field.deprecations.get(name)) is None:
        return said
    text = said.get("description") or field.metadata.get("help", "")
    return said | {"deprecated": True, "description": f"{text} (deprecated since {owner}{since})".strip()}


class _Walker:
    """Walks the fields; classes met on the way are kept in `defs`, and the first one is the root `#`."""

    def __init__(self, root: type, owner: str) -> None:
        self._owner = owner and f"{owner} "
        self.defs: dict[str, Any] = {}
        self._refs: dict[type, str] = {root: "#"}

    def object(self, cls: Any) -> dict[str, Any]:
        if is_pydantic(cls):
            schema = schema_of_model(cls)
            self.defs |= schema.pop("$defs", {})
            return schema
        schema = {"title": cls.__name__, "type": "object", "properties": {}, "additionalProperties": False}
        if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):  # as dataclasses write it
            schema["description"] = cls.__doc__.strip().splitlines()[0]
        for field in fields_of(cls):
            prop, names = self._property(field), [field.key, *field.aliases]
            schema["properties"] |= {name: prop | _naming(field, name, self._owner) for name in names}
            if field.required and len(names) == 1:
                schema.setdefault("required", []).append(field.key)
            elif field.required:
                schema.setdefault("allOf", []).append({"oneOf": [{"required": [name]} for name in names]})
            elif len(names) > 1:
                both = [{"required": list(pair)} for pair in combinations(names, 2)]
                schema.setdefault("allOf", []).append({"not": {"anyOf": both}})
        return schema

    def _property(self, field: ConfigField) -> dict[str, Any]:
        schema = self.value(field.annotation)
        constrain(schema, field.validator, field.annotation)
        schema |= {_METADATA[key]: value for key, value in field.metadata.items() if key in _METADATA}
        default = field.default
        with suppress(TypeError):  # a default without a JSON form isn't shown
            if isinstance(default, attrs.Factory) and not default.takes_self:  # type: ignore[arg-type]  # stubs call it a function
                schema["default"] = unstructure(default.factory())
            elif not field.required:
                schema["default"] = unstructure(default)
        return schema

    def value(self, annotation: Any) -> dict[str, Any]:
        """The schema of one annotation."""
        shape = shape_of(annotation)
        parts = [] if shape.kind in {"choice", "object"} else [self.value(part) for part in shape.parts]
        match shape.kind:
            case "any":
                return {}
            case "choice":
                return {"enum": [unstructure(choice) for choice in shape.parts]}
            case "union":
                return {"anyOf": parts}
            case "sequence":
                return {"type": "array", "items": parts[0]}
            case "tuple":
                return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
            case "mapping":
                names = {"pattern": "^-?[0-9]+$"} if parts[0].get("type") == "integer" else parts[0]
                return {"type": "object", "propertyNames": names, "additionalProperties": parts[1]}
            case "object":
                return {"$ref": self._ref(shape.target)}
        return {"type": "string" if shape.kind == "path" else shape.kind}

    def _ref(self, cls: type) -> str:
        if cls not in self._refs:
            name = cls.__qualname__.rpartition("<locals>.")[2]
            while name in self.defs:
                name += "_"
            self._refs[cls], self.defs[name] = f"#/$defs/{name}", {}
            self.defs[name] = self.object(cls)
        return self._refs[cls]
