"""Building one plugin thousands of times: what was accepted for a field once needn't be read again.

A grid over params gives each arm params of its own, made of few values. Where the fields of a Config don't depend on each
other, a plugin of values that were all accepted before is built from them directly. Its constructor still runs each
time, since it may refuse values that make no sense together; whatever it raises is left to the ordinary way to explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys import Registry, structure
from evsys._plugins.shape import ConfigField, fields_of

__all__ = ["Template"]

_INSIDE = ("validator", "_validators", "validators")


@attrs.frozen(eq=False)
class Template:
    """How to build a plugin class from field values that were accepted before."""

    plugin: type
    fields: Mapping[str, ConfigField]
    accepted: dict[tuple[str, int], tuple[Any, Any]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, registry: Registry, kind: str, name: str) -> Template | None:
        """The template of a plugin, None where its params must be read as a whole."""
        plugin, config = registry.get(kind, name), registry.config_of(kind, name)
        if (
            not isinstance(plugin, type)
            or config is None
            or config is plugin
            or registry.find(kind, name).params
        ):
            return None
        return (
            cls(plugin, {field.key: field for field in fields_of(config)})
            if _is_independent(config)
            else None
        )

    def build(self, params: Mapping[str, Any]) -> Any:
        """The plugin, or None where a value is new or the constructor refuses them."""
        given = {}
        for key, raw in params.items():
            known = self.accepted.get((key, id(raw)))
            if known is None:
                return None
            given[key] = known[1]
        fields = {key: given[key] if key in given else _default(field) for key, field in self.fields.items()}
        try:
            return self.plugin(**fields)
        except Exception:
            return None

    def learn(self, params: Mapping[str, Any]) -> None:
        """Note the values of params that were built from in the ordinary way."""
        for key, raw in params.items():
            if key in self.fields and (key, id(raw)) not in self.accepted:
                # The raw value is kept, so that its identity can't be given to another.
                self.accepted[key, id(raw)] = raw, structure(self.fields[key].annotation, raw)


def _default(field: ConfigField) -> Any:
    default = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def _is_independent(config: type) -> bool:
    """True for an attrs class whose fields are judged one by one: no hooks, converters or validators of its own."""
    if (
        not attrs.has(config)
        or hasattr(config, "__attrs_post_init__")
        or hasattr(config, "__attrs_pre_init__")
    ):
        return False
    return all(
        field.converter is None
        and _judges_alone(field.validator)
        and not (isinstance(field.default, attrs.Factory) and field.default.takes_self)  # type: ignore[arg-type]
        for field in attrs.fields(config)
    )


def _judges_alone(validator: Any) -> bool:
    """True for the validators that come with attrs, which look at nothing but the value."""
    if validator is None:
        return True
    if isinstance(validator, tuple | list):
        return all(map(_judges_alone, validator))
    if type(validator).__module__ not in {"attr.validators", "attr._make"}:
        return False
    return all(_judges_alone(getattr(validator, name, None)) for name in _INSIDE)
