"""Experiment files, plugins and answers described: by their JSON Schemas, or in outline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys import Registry
from evsys._plugins.refusals import closest
from evsys.errors import ConfigError
from evsys.optional import declared
from evsys.protocols import KINDS
from evsys_runtime.experiment.command_results import Described
from evsys_runtime.tools.outline import outline

__all__ = ["EXPERIMENT", "RESULT", "describe", "plugin_schema"]

EXPERIMENT, RESULT = "experiment", "result"
"""The subjects besides the kinds of plugins."""


def describe(kind: str | None, name: str | None, registry: Registry, *, full: bool) -> Described:
    """The names of a kind, or the description of one of it.

    Args:
        kind: of plugin, or `experiment` or `result`; None gives all of these.
        name: of the plugin, or the result.
        registry: the plugins there are.
        full: the JSON Schema, otherwise its outline.

    Raises:
        ConfigError: there is no such kind.
        PluginError, StoreError: there is none of this name.
    """
    kinds = (EXPERIMENT, RESULT, *KINDS)
    if kind is None:
        return Described(of="kinds", names=kinds)
    if kind not in kinds:
        hint = closest(kind, kinds) or f"kinds: {', '.join(kinds)}"
        raise ConfigError(f"unknown kind {kind!r}", hint=hint)
    if name is None and kind != EXPERIMENT:
        return Described(of=kind, names=_names(kind, registry))
    found = _schema(kind, name, registry)
    of = kind if name is None else f"{kind} {name}"
    return Described(of=of, schema=found) if full else Described(of=of, outline=outline(found))


def _names(kind: str, registry: Registry) -> tuple[str, ...]:
    if kind == RESULT:
        from evsys_runtime.experiment.result_schemas import RESULTS

        return tuple(RESULTS)
    return tuple(entry.name for entry in registry.entries(kind))


def _schema(kind: str, name: str | None, registry: Registry) -> dict[str, Any]:
    if kind == EXPERIMENT:
        from evsys_runtime.config.schema import experiment_schema

        return experiment_schema(registry)
    assert name is not None
    if kind == RESULT:
        from evsys_runtime.experiment.result_schemas import result_schema

        return result_schema(name)
    return plugin_schema(registry, kind, name)


def plugin_schema(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    """The schema of a plugin; of an algorithm also the bands in which it wants its metrics, under `x-health`."""
    schema = registry.schema(kind, name)
    health = declared(registry.get(kind, name), "health") if kind == "algorithm" else None
    if not isinstance(health, Mapping):
        return schema
    parts = ("low", "high", "why", "lasting")
    bands = {metric: {part: getattr(band, part) for part in parts} for metric, band in health.items()}
    return {**schema, "x-health": bands} if bands else schema
