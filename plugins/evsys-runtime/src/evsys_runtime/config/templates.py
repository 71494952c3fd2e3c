"""Building one plugin thousands of times: a value accepted for a field once needn't be read again.

A grid over params gives each arm params of its own, made of few values. A plugin that keeps its Config as `config`
has made it from the fields again, so the Config's own validators and hooks, and the plugin's, have run on the
values together. The remaining check is that each value has the right type, which is known for values accepted
before. Anything not plainly right is left to the ordinary reading, which explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from evsys import Registry, structure
from evsys._plugins.models import is_pydantic
from evsys._plugins.shape import ConfigField, fields_of
from evsys.errors import PLUGIN_FAILURES

__all__ = ["Template"]


@attrs.frozen(eq=False)
class Template:
    """How to build a plugin class from field values accepted before, by field and identity."""

    plugin: type
    config: type
    fields: Mapping[str, ConfigField]
    defaults: Mapping[str, Any]
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    accepted: dict[tuple[str, int], tuple[Any, Any]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, registry: Registry, kind: str, name: str, built: Any) -> Template | None:
        """The template of a plugin built once, None where its params must be read as a whole."""
        config: type = type(getattr(built, "config", None))
        if (
            config is not registry.config_of(kind, name)
            or is_pydantic(config)
            or registry.find(kind, name).params
        ):
            return None
        fields = {field.key: field for field in fields_of(config)}
        made = {key: field.default for key, field in fields.items() if hasattr(field.default, "takes_self")}
        if any(factory.takes_self for factory in made.values()):
            return None
        if any(isinstance(field.default, list | dict | set) for field in fields.values()):
            return None  # copied for each object by the ordinary way
        plain = {
            key: field.default for key, field in fields.items() if key not in made and not field.required
        }
        return cls(
            type(built), config, fields, plain, tuple((key, each.factory) for key, each in made.items())
        )

    def build(self, params: Mapping[str, Any]) -> Any:
        """The plugin, or None where a value is new or where the values are refused together."""
        given = dict(self.defaults)
        for key, raw in params.items():
            known = self.accepted.get((key, id(raw)))
            if known is None:
                return None
            given[key] = known[1]
        for key, factory in self.factories:
            if key not in params:
                given[key] = factory()
        try:
            plugin = self.plugin(**given)
        except PLUGIN_FAILURES:  # the ordinary way meets it again and says what is wrong
            return None
        return plugin if type(getattr(plugin, "config", None)) is self.config else None

    def learn(self, params: Mapping[str, Any]) -> None:
        """Note the values of params read in the ordinary way and found right."""
        for key, raw in params.items():
            if key in self.fields and (key, id(raw)) not in self.accepted:
                # The raw value is kept, so that its identity can't be given to another.
                self.accepted[key, id(raw)] = raw, structure(self.fields[key].annotation, raw)
