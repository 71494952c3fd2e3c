"""JSON Schema of the whole experiment file, with the params of every installed plugin.

The file's classes give its shape; wherever a plugin is named, a `oneOf` over the installed ones with `kind` as
discriminator takes the place of free params. Files that this schema refuses are refused by `validate` too. Not the other
way round: that files exist, names agree and backends can do what is asked is beyond any schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from evsys import PluginEntry, Registry, current_registry, schema_for_config
from evsys.errors import EvsysError
from evsys_runtime.config import model
from evsys_runtime.config.later import NOT_YET, later_names

__all__ = ["experiment_schema"]

_SPEC = "#/$defs/PluginSpec"
_AGENT = "#/$defs/AgentConfig"
_SEARCH = "#/$defs/SearchConfig"


def experiment_schema(registry: Registry | None = None) -> dict[str, Any]:
    """The schema of an experiment file (2020-12).

    Imports every plugin that a file can name; those that can't be loaded are left out and listed under
    `x-evsys-unavailable`.

    Args:
        registry: whose plugins; the current one by default.
    """
    schema = schema_for_config(model.ExperimentConfig, "evsys")
    plugins = _Plugins(registry or current_registry())
    definitions = schema["$defs"]
    for name, definition in [("ExperimentConfig", schema), *list(definitions.items())]:
        cls = getattr(model, name, None)
        if cls is not None:
            _name_plugins(cls, definition, plugins)
    referee = definitions["SearchConfig"]["properties"]["referee"]
    for branch in plugins.searches():
        branch["properties"]["referee"] = referee
    for name in ("ExperimentConfig", "RunConfig", "BenchmarkConfig"):
        _mark_later(name, schema if name == "ExperimentConfig" else definitions[name])
    definitions["BenchmarkConfig"] |= {
        "anyOf": [{"required": [key]} for key in ("path", "id", "name")],
    }
    definitions |= plugins.definitions
    definitions |= {"PartialRun": _partial(definitions["RunConfig"])}
    for place in (schema, definitions["MatrixConfig"]):
        place["properties"]["base_run"]["anyOf"] = [{"$ref": "#/$defs/PartialRun"}, {"type": "null"}]
    schema |= {
        "title": "evsys experiment",
        "oneOf": [{"required": [key]} for key in ("run", "runs", "matrix")],
        "x-evsys-unavailable": plugins.unavailable,
    }
    return schema


def _mark_later(name: str, definition: dict[str, Any]) -> None:
    for key in later_names(name.removesuffix("Config").lower()):
        prop = definition["properties"][key]
        prop["x-evsys-later"] = True
        prop["description"] = f"{prop.get('description', '')} ({NOT_YET.capitalize()}.)".strip()


def _name_plugins(cls: type, definition: dict[str, Any], plugins: _Plugins) -> None:
    """Replace the free specs of fields that name a kind of plugin."""
    for field in attrs.fields(cls):
        kind = field.metadata.get("plugin")
        if kind is None:
            continue
        texts = {"metric": True, "rollout_engine": True}.get(kind, False)
        for name in (field.name, *field.metadata.get("aliases", ())):
            prop = definition["properties"][name]
            definition["properties"][name] = _replace(prop, plugins, kind, names=texts)


def _replace(schema: Any, plugins: _Plugins, kind: str, *, names: bool) -> Any:
    if isinstance(schema, list):
        return [_replace(item, plugins, kind, names=names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in (_SPEC, _SEARCH):
        return schema | {"$ref": plugins.reference(kind)}
    if schema.get("$ref") == _AGENT:
        return schema | {"$ref": plugins.agent()}
    if names and schema == {"type": "string"}:
        return {"$ref": plugins.names(kind)}
    return {key: _replace(value, plugins, kind, names=names) for key, value in schema.items()}


def _partial(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run of which the axes of a matrix may give any part: no key is required, and params are free."""
    properties = {}
    for key, schema in run["properties"].items():
        free = key in {"data", "model", "algorithm", "backend", "agent", "teacher", "reference"}
        properties[key] = {"type": ["object", "null"]} if free else schema
    return {"title": "PartialRun", "type": "object", "properties": properties, "additionalProperties": False}


class _Plugins:
    """Definitions of plugin specs by kind, made when first asked for."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.definitions: dict[str, Any] = {}
        self.unavailable: list[dict[str, str]] = []

    def reference(self, kind: str) -> str:
        """The definition of `{kind, params}` for one kind of plugin."""
        name = f"{kind} plugin"
        if _key(name) not in self.definitions:
            self.definitions[_key(name)] = {}
            branches = [branch for entry in self.registry.entries(kind) for branch in self._branches(entry)]
            self.definitions[_key(name)] = (
                {"title": name, "oneOf": branches} if branches else {"not": {}, "title": name}
            )
        return _pointer(name)

    def agent(self) -> str:
        """The definition of an agent: registered, or by its import path."""
        name = "agent"
        if _key(name) not in self.definitions:
            by_path = {
                "type": "object",
                "properties": {
                    "kind": {"type": "null"},
                    "import_path": {"type": "string"},
                    "params": {"type": "object"},
                },
                "required": ["import_path"],
                "additionalProperties": False,
            }
            self.definitions[_key(name)] = {"anyOf": [{"$ref": self.reference("agent")}, by_path]}
        return _pointer(name)

    def searches(self) -> list[dict[str, Any]]:
        """The searches of the definition of one, each of which may have a referee alongside it."""
        return list(self.definitions.get(_key("search plugin"), {}).get("oneOf", ()))

    def names(self, kind: str) -> str:
        """The definition of a plugin's name alone, where its params can be left out."""
        name = f"{kind} name"
        if _key(name) not in self.definitions:
            self.reference(kind)
            known = [
                branch["properties"]["kind"]
                for branch in self.definitions[_key(f"{kind} plugin")].get("oneOf", ())
                if "params" not in branch["required"]
            ]
            always = [{"const": "auto"}] if kind == "rollout_engine" else []
            self.definitions[_key(name)] = {
                "title": name,
                "type": "string",
                "anyOf": [*always, *known] or [{"not": {}}],
            }
        return _pointer(name)

    def _branches(self, entry: PluginEntry) -> Iterator[dict[str, Any]]:
        try:
            params = self.registry.schema(entry.kind, entry.qualified)
        except EvsysError as exc:
            self.unavailable.append(
                {
                    "kind": entry.kind,
                    "name": entry.name,
                    "distribution": entry.distribution,
                    "error": str(exc),
                }
            )
            return
        title = f"{entry.kind} {entry.qualified}"
        self.definitions[_key(title)] = self._embed_schema(params, title)
        for spelling in self._spellings(entry):
            yield _branch({"const": spelling}, title, params)
        if entry.name.endswith(("@k", "^k")) and "k" in params.get("properties", {}):
            member = f"{title[:-1]}N"
            rest = {
                key: value for key, value in self.definitions[_key(title)]["properties"].items() if key != "k"
            }
            required = [key for key in params.get("required", ()) if key != "k"]
            self.definitions[_key(member)] = self.definitions[_key(title)] | {
                "properties": rest,
                "required": required,
            }
            stems = "|".join(spelling[:-1].replace("^", r"\^") for spelling in self._spellings(entry))
            pattern = f"^({stems})(0|[1-9][0-9]*)$"
            yield _branch({"type": "string", "pattern": pattern}, member, {"required": required})

    def _spellings(self, entry: PluginEntry) -> list[str]:
        """The names that mean this entry: the bare one where it isn't ambiguous, and the qualified one."""
        try:
            found = self.registry.find(entry.kind, entry.name)
        except EvsysError:
            return [entry.qualified]
        return [entry.name, entry.qualified] if found == entry else [entry.qualified]

    def _embed_schema(self, params: dict[str, Any], title: str) -> dict[str, Any]:
        """A plugin's schema as a definition of the whole: its own definitions alongside it, its references adapted."""
        own = params.get("$defs", {})
        for name, definition in own.items():
            self.definitions[_key(f"{title} {name}")] = _move(definition, title)
        body = {key: value for key, value in params.items() if key not in {"$defs", "$schema"}}
        moved: dict[str, Any] = _move(body, title)
        return moved


def _branch(kind: dict[str, Any], title: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": kind, "params": {"$ref": _pointer(title)}},
        "required": ["kind", "params"] if params.get("required") else ["kind"],
        "additionalProperties": False,
    }


def _key(name: str) -> str:
    """A definition's name that needs no escaping in a pointer."""
    return re.sub(
        r"[^A-Za-z0-9.-]+", lambda match: "_" if match[0] in " /" else f"_{ord(match[0][0]):x}_", name
    )


def _pointer(name: str) -> str:
    return f"#/$defs/{_key(name)}"


def _move(schema: Any, title: str) -> Any:
    """A part of a plugin's schema with its references pointing to where its definitions went."""
    if isinstance(schema, list):
        return [_move(item, title) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _move(value, title) for key, value in schema.items()}
    reference = schema.get("$ref")
    if reference == "#":
        moved["$ref"] = _pointer(title)
    elif isinstance(reference, str) and reference.startswith("#/$defs/"):
        moved["$ref"] = _pointer(f"{title} {reference.removeprefix('#/$defs/')}")
    return moved
