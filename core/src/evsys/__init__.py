"""evsys: the contract between plugins and the programs that run them. Names resolve lazily, so importing this costs
nothing.
"""

# ruff: noqa: F405 - `__all__` lists names that the star imports below bring
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys import errors, protocols, types
    from evsys._plugins.decorators import *  # noqa: F403
    from evsys._plugins.fields import option
    from evsys._plugins.registry import PluginEntry, Registry, current_registry, use_registry
    from evsys._plugins.schema import schema_for_config
    from evsys._plugins.structuring import structure, unstructure
    from evsys.errors import boundary
    from evsys.hooks import HookManager
    from evsys.hookspecs import hookimpl

__all__ = [
    "HookManager",
    "PluginEntry",
    "Registry",
    "boundary",
    "current_registry",
    "errors",
    "hookimpl",
    "option",
    "protocols",
    "register_agent",
    "register_algorithm",
    "register_backend",
    "register_callback",
    "register_data_store",
    "register_deployer",
    "register_environment",
    "register_inference",
    "register_inference_client",
    "register_launcher",
    "register_log_store",
    "register_loss",
    "register_metric",
    "register_renderer",
    "register_researcher",
    "register_rollout_engine",
    "register_search",
    "register_transform",
    "register_verifier",
    "register_verifier_fn",
    "schema_for_config",
    "structure",
    "types",
    "unstructure",
    "use_registry",
]

_HOME = {
    "HookManager": "hooks",
    "boundary": "errors",
    "hookimpl": "hookspecs",
    "option": "_plugins.fields",
    "schema_for_config": "_plugins.schema",
    "structure": "_plugins.structuring",
    "unstructure": "_plugins.plain",
    **dict.fromkeys(("PluginEntry", "Registry", "current_registry", "use_registry"), "_plugins.registry"),
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in {"errors", "protocols", "types"}:
            return import_module(f"evsys.{name}")
        if name in _HOME or name.startswith("register_"):
            value = getattr(import_module(f"evsys.{_HOME.get(name, '_plugins.decorators')}"), name)
            return globals().setdefault(name, value)
        raise AttributeError(f"module 'evsys' has no attribute {name!r}")
