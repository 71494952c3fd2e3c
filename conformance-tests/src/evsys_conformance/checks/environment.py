"""What an environment keeps: it can be released, whatever happened before."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach
from evsys_conformance.places import told_of
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
            await _stop(plugin, "stopped a second time")

        run(life())

    @check()
    def test_stops_without_a_start(self, plugin: Any) -> None:
        """What failed to start, or never began to, can be stopped."""
        run(_stop(plugin, "stopped without having been started"))

    @check()
    def test_stops_after_a_start_that_was_cancelled(self, plugin: Any) -> None:
        """A rollout that is cancelled while its environment starts leaves nothing behind that can't be stopped."""

        async def life() -> None:
            starting = asyncio.create_task(plugin.start())
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting], timeout=5.0)
            await _stop(plugin, "stopped after its start was cancelled")

        run(life())


async def _stop(environment: Any, when: str) -> None:
    try:
        await environment.stop()
    except Exception as exc:
        breach(
            f"{when}, it fails: {told_of(exc)}",
            wanted="`stop` releases what there is, and returns",
        )
