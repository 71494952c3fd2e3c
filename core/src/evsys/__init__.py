"""evsys: the contract between plugins and whoever runs them. Names resolve lazily, so importing this costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys import errors, protocols, types
    from evsys._plugins.registry import Registry, current_registry, use_registry
    from evsys._plugins.schema import schema_for_config
    from evsys.hookspecs import hookimpl

__all__ = [
    "Registry",
    "current_registry",
    "errors",
    "hookimpl",
    "protocols",
    "schema_for_config",
    "types",
    "use_registry",
]

_HOME = {
    "Registry": "evsys._plugins.registry",
    "current_registry": "evsys._plugins.registry",
    "use_registry": "evsys._plugins.registry",
    "schema_for_config": "evsys._plugins.schema",
    "hookimpl": "evsys.hookspecs",
}
_MODULES = {"errors", "protocols", "types"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"evsys.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    msg = f"module 'evsys' has no attribute {name!r}"
    raise AttributeError(msg)
