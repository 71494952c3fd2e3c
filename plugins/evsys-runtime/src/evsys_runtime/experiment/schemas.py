"""`schema_for`: what `evsys schema` prints, from Python."""

from __future__ import annotations

from typing import Any

from evsys import current_registry

__all__ = ["schema_for"]


def schema_for(kind: str, name: str) -> dict[str, Any]:
    """The JSON Schema of a plugin's parameters.

    Raises:
        PluginNotFoundError: no plugin of this kind has this name.
    """
    return current_registry().schema(kind, name)
