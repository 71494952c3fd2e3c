"""The plugin under test: found by its entry point, or handed over by a subclass of a conformance class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from evsys import Registry
from evsys.errors import PluginLoadError

if TYPE_CHECKING:
    from evsys import PluginEntry

__all__ = ["Subject"]

_NEVER_BUILT = frozenset({"command", "plugin"})
"""Kinds whose entry names an object, not what makes one."""


@dataclass(frozen=True)
class Subject:
    """A plugin of a kind, in a registry that knows it as `name`. `entry` is None for a given object."""

    kind: str
    name: str
    registry: Registry
    entry: PluginEntry | None = None

    @classmethod
    def handed_over(cls, kind: str, plugin: Any) -> Subject:
        """The class of an object, or a bare function, registered as a project's own plugin; modules and commands are
        themselves.
        """
        function = plugin.func if isinstance(plugin, partial) else plugin
        is_itself = hasattr(function, "__qualname__") or kind in _NEVER_BUILT
        definition = function if is_itself else type(plugin)
        name = getattr(definition, "name", None)
        registry = Registry()
        label = name if isinstance(name, str) and name else getattr(definition, "__name__", kind)
        registry.register(kind, label, definition)
        return cls(kind, f"project/{label}", registry)

    def load(self) -> Any:
        """The class, function or module.

        Raises:
            PluginError: it can't be loaded, or isn't what its kind asks for.
        """
        try:
            return self.registry.get(self.kind, self.name)
        except SystemExit as exc:
            raise PluginLoadError(f"{self.kind} {self.name} ends the process when it is imported") from exc

    def build(self, params: Mapping[str, Any] | None = None) -> Any:
        """The plugin made from params."""
        return self.registry.build(self.kind, self.name, dict(params or {}))

    @property
    def config(self) -> type | None:
        """The class of its params."""
        return self.registry.config_of(self.kind, self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its params."""
        return self.registry.schema(self.kind, self.name)

    @property
    def facts(self) -> dict[str, Any]:
        """Its attribute `conformance`."""
        said = getattr(self.load(), "conformance", {})
        return dict(said) if isinstance(said, Mapping) else {}
