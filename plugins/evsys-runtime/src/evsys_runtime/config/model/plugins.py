"""How the experiment file names plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys_runtime.config.model.fields import key

__all__ = ["AgentConfig", "PluginSpec"]


@attrs.frozen(kw_only=True)
class PluginSpec:
    """A plugin by name with its parameters."""

    kind: str = key("Name of the plugin, or `distribution/name` where several offer it.")
    params: Mapping[str, Any] = key("Its parameters; `evsys schema KIND NAME` lists them.", factory=dict)


@attrs.frozen(kw_only=True)
class AgentConfig:
    """Who acts in rollouts: a registered agent, or one given by its import path."""

    kind: str | None = key("Name of a registered agent.", None)
    import_path: str | None = key("`module:Class` or `module.Class` of an agent harness.", None)
    params: Mapping[str, Any] = key("Its parameters.", factory=dict)
