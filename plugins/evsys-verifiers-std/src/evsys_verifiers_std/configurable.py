"""The base of the verifiers: they are built from the fields of their `Config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

__all__ = ["Configured"]


class Configured:
    """Built from the fields of its `Config`; what a call passes as `params` wins over them for that call."""

    Config: ClassVar[Any]
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"

    def _settings(self, params: Mapping[str, Any]) -> Any:
        return attrs.evolve(self.config, **params) if params else self.config
