"""An experiment file in full: every default filled in, every plugin by its qualified name.

The result is plain values and can be written down: `${NAME}` stays as the file has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys import Registry, structure, unstructure
from evsys._plugins.models import is_pydantic
from evsys._plugins.shape import fields_of
from evsys_runtime.config import placeholders
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.model import AgentConfig, PluginSpec

__all__ = ["NO_PARAMS", "Resolver"]

NO_PARAMS: Mapping[str, Any] = {}
"""Of a plugin only named; one object, so that it is looked at once."""


_PLAIN = frozenset({str, int, float, bool, type(None)})


@attrs.frozen(eq=False)
class Resolver:
    """Fills in defaults. Equal parts of arms are the same objects, and each is looked at once."""

    registry: Registry
    _params: dict[tuple[str, str, int], tuple[Any, Any]] = attrs.field(factory=dict)
    _built: dict[tuple[str, str, int], tuple[Any, Any]] = attrs.field(factory=dict)
    _plugins: Plugins = attrs.field(
        init=False, default=attrs.Factory(lambda self: Plugins(self.registry), takes_self=True)
    )
    _parts: dict[tuple[int, str | None], tuple[Any, Any]] = attrs.field(factory=dict)

    def fields(self, config: Any, *, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        """All fields of a part of the file's model, such as a `RunConfig`, as plain values."""
        return {
            field.name: self._part(getattr(config, field.name), field.metadata.get("plugin"))
            for field in attrs.fields(type(config))
            if field.name not in skip
        }

    def plugin(self, kind: str, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """`{kind, params}` of a plugin: its qualified name, and all its params."""
        memo = (kind, name, id(params))
        if memo not in self._params:
            # The params are kept alongside what became of them, so that their identity can't be given to others.
            self._params[memo] = params, self._all_params(kind, name, params)
        entry = self.registry.find(kind, name)
        return {"kind": entry.qualified, "params": self._params[memo][1]}

    def remember(self, kind: str, spec: PluginSpec, plugin: Any) -> None:
        """Note a plugin built from a part of a run already."""
        self._built[kind, spec.kind, id(spec.params)] = spec.params, plugin

    def built(self, kind: str, spec: PluginSpec) -> Any:
        """The plugin that a checked part of a run names; parts with the same params share it.

        Raises:
            ConfigError, PluginError: it can't be built any more, though it was when the file was checked.
        """
        memo = (kind, spec.kind, id(spec.params))
        if memo not in self._built:
            made = self._plugins.build(kind, spec.kind, spec.params, "$").plugin
            if made is None:
                made = self.registry.build(kind, spec.kind, placeholders.resolve(spec.params))
            self.remember(kind, spec, made)
        return self._built[memo][1]

    def _part(self, value: Any, kind: str | None) -> Any:
        if type(value) in _PLAIN and kind is None:
            return value
        memo = (id(value), kind)
        if memo not in self._parts:
            # The value is kept alongside what became of it, so that its identity can't be given to another.
            self._parts[memo] = value, self._value(value, kind)
        return self._parts[memo][1]

    def _value(self, value: Any, kind: str | None) -> Any:
        if isinstance(value, PluginSpec) and kind is not None:
            return {
                **self.plugin(kind, value.kind, value.params),
                **self.fields(value, skip=("kind", "params")),
            }
        if isinstance(value, AgentConfig):
            return self._agent(value)
        if isinstance(value, str) and kind is not None and value != "auto":
            return self.plugin(kind, value, NO_PARAMS)
        if isinstance(value, tuple | list):
            return [self._value(item, kind) for item in value]
        if attrs.has(type(value)):
            return self.fields(value)
        return unstructure(value)

    def _agent(self, agent: AgentConfig) -> dict[str, Any]:
        if agent.kind is None:  # its class says itself what else it takes
            return {"import_path": agent.import_path, "params": unstructure(agent.params)}
        return self.plugin("agent", agent.kind, agent.params)

    def _all_params(self, kind: str, name: str, params: Mapping[str, Any]) -> Any:
        config = self.registry.config_of(kind, name)
        given = unstructure(params)
        if config is None:
            return given
        entry = self.registry.find(kind, name)
        full = unstructure(structure(config, {**placeholders.resolve(params), **entry.params}))
        if not placeholders.mentions(params):
            return full
        keys = _keys(config)
        if not keys.keys() >= params.keys():
            return given  # by a name whose field isn't known, so that nothing secret slips in alongside it
        asked = {keys[key]: given[key] for key, value in params.items() if placeholders.mentions(value)}
        return {**full, **asked}


def _keys(config: Any) -> dict[str, str]:
    """Every name under which a field of a Config may be given, with the one that it is written under."""
    if is_pydantic(config):
        return {name: name for name, field in config.model_fields.items() if field.alias is None}
    return {name: field.key for field in fields_of(config) for name in (field.key, *field.aliases)}
