"""What an environment keeps: it can be released, also twice."""

from __future__ import annotations

from typing import Any, ClassVar

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.running import run

__all__ = ["EnvironmentConformance"]


class EnvironmentConformance(PluginConformance):
    """Checks of the kind `environment`."""

    kind: ClassVar[str | None] = "environment"

    @check()
    def test_starts_and_stops_twice(self, plugin: Any) -> None:
        """Stopping again what is stopped is fine."""

        async def life() -> None:
            await plugin.start()
            await plugin.stop()
            await plugin.stop()

        run(life())

    @check()
    def test_stops_without_a_start(self, plugin: Any) -> None:
        """What failed to start, or never began to, can be stopped."""
        run(plugin.stop())
