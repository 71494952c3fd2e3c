"""From a plugin and the values of its params to the object that runs."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import WRAPPER_ASSIGNMENTS, partial, wraps
from typing import Any

from evsys._plugins.models import is_pydantic
from evsys._plugins.scan import PluginEntry
from evsys._plugins.shape import fields_of, is_config
from evsys.errors import PLUGIN_FAILURES, ConfigError, EvsysError, PluginContractError, Problem, boundary

__all__ = ["build", "config_of", "schema_of"]


def config_of(plugin: Any) -> type | None:
    """The class of a plugin's params: its `Config`, or the plugin itself if it is an attrs class or dataclass.

    Raises:
        PluginContractError: there is a `Config`, but it is not an attrs class, dataclass or pydantic model.
    """
    config = getattr(plugin, "Config", plugin if is_config(plugin) else None)
    if config is not None and not is_config(config):
        what = f"{plugin.__module__}.{plugin.__qualname__}.Config"
        raise PluginContractError(f"{what} is not an attrs class, dataclass or pydantic model")
    return config


def build(entry: PluginEntry, plugin: Any, params: Mapping[str, Any], path: str) -> Any:
    """See `Registry.build`."""
    from evsys._plugins.structuring import json_path, structure

    for name in entry.params.keys() & params.keys():
        text = f"the name {entry.qualified!r} has it already"
        raise ConfigError([Problem(path=json_path(path, name), message=text, hint="leave it out")])
    config, is_class = config_of(plugin), isinstance(plugin, type)
    given_when_called = entry.kind == "verifier" and not is_class
    if config is None and params and not given_when_called:
        raise ConfigError([Problem(path=path, message=f"{entry.kind} {entry.name!r} takes no params")])
    settings = structure(config, {**params, **entry.params}, path=path) if config else None
    if config is plugin:
        return settings
    fields = _fields(config, settings) if config else {}
    if is_class:
        return _build_plugin(entry, plugin, fields, path)
    if given_when_called:
        given = fields or entry.params
        return _given_when_called(plugin, given) if given else plugin
    return partial(plugin, **fields) if fields else plugin


def _given_when_called(plugin: Any, fields: Mapping[str, Any]) -> Any:
    """A verifier function whose params are the fields made of them, defaults included, regardless of the caller."""
    own = [name for name in dir(plugin) if name[0] != "_"]  # what it declares, such as `reward_range`
    has_config = hasattr(plugin, "Config")

    @wraps(plugin, assigned=(*WRAPPER_ASSIGNMENTS, *own))
    def call(model_output: str, expected: Any, params: Mapping[str, Any], **further: Any) -> Any:
        return plugin(model_output, expected, {**({} if has_config else params), **fields}, **further)

    return call


def _fields(config: Any, settings: Any) -> dict[str, Any]:
    if is_pydantic(config):
        return {name: getattr(settings, name) for name in config.model_fields} | (settings.model_extra or {})
    values = {field.key: getattr(settings, field.name) for field in fields_of(config)}
    for field in fields_of(config):
        # attrs hands the same list or mapping to all instances, and one object's must not be another's.
        if isinstance(field.default, list | dict | set) and values[field.key] is field.default:
            values[field.key] = deepcopy(field.default)
    return values


def _build_plugin(entry: PluginEntry, plugin: Any, fields: Mapping[str, Any], path: str) -> Any:
    try:
        return plugin(**fields)
    except EvsysError:
        raise
    except ValueError as exc:  # how a constructor refuses values that make no sense together
        raise ConfigError([Problem(path=path, message=f"{entry.kind} {entry.name!r}: {exc}")]) from exc
    except PLUGIN_FAILURES as exc:
        given = ", ".join(fields) or "nothing"
        message = f"{entry} can't be made from {given}: {type(exc).__name__}: {exc}"
        hint = "its __init__ takes each field of its Config by keyword"
        raise PluginContractError(message, hint=hint) from exc


def schema_of(entry: PluginEntry, plugin: Any) -> dict[str, Any]:
    """See `Registry.schema`."""
    from evsys._plugins.schema import schema_for_config

    with boundary("plugin", entry.qualified):
        config = config_of(plugin)
        schema = schema_for_config(config, entry.distribution) if config else {}
    if config is None:
        anything = entry.kind == "verifier" and not isinstance(plugin, type)
        return {"title": entry.name, "type": "object", "properties": {}, "additionalProperties": anything}
    schema["title"] = entry.name
    for name in entry.params:
        schema["properties"].pop(name, None)
        schema["required"] = [other for other in schema.get("required", []) if other != name]
    return schema
