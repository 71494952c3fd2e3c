"""`@register_<kind>("name")`: how a project's own code becomes a plugin, in the registry that is current."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evsys._plugins.registry import current_registry


class _Register:
    """Registers what it decorates, under the given name or the plugin's own."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__[T](self, name: str | None = None) -> Callable[[T], T]:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"write @register_{self._kind}() with brackets above {name!r}")

        def register(plugin: T) -> T:
            current_registry().register(self._kind, name or _own_name(plugin), plugin)
            return plugin

        return register


def _own_name(plugin: Any) -> str:
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) else plugin.__name__


register_algorithm = _Register("algorithm")
register_backend = _Register("backend")
register_loss = _Register("loss")
register_transform = _Register("transform")
register_verifier = register_verifier_fn = _Register("verifier")
register_metric = _Register("metric")
register_data_store = _Register("data_store")
register_log_store = _Register("log_store")
register_inference_client = register_inference = _Register("inference_client")
register_rollout_engine = _Register("rollout_engine")
register_environment = _Register("environment")
register_agent = _Register("agent")
register_renderer = _Register("renderer")
register_callback = _Register("callback")
register_deployer = _Register("deployer")
register_search = _Register("search")
register_launcher = _Register("launcher")
