"""The contract of an environment: it can be released in any state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from evsys.errors import PLUGIN_FAILURES
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import require
from evsys_conformance.places import describe_error
from evsys_conformance.running import run

__all__ = ["EnvironmentConformance"]

_SECONDS = 5.0


class EnvironmentConformance(PluginConformance):
    """Checks of the kind `environment`."""

    kind: ClassVar[str | None] = "environment"

    @check()
    def test_starts_and_stops_twice(self, plugin: Any, make: Callable[[], Any]) -> None:
        """Stopping again what is stopped is fine."""

        async def life() -> None:
            await plugin.start()
            await plugin.stop()
            told = await _stopping(plugin)
            if told is not None and told == await _stopping(make()):
                pytest.skip(f"after test_stops_without_a_start: it fails in the same way: {told}")
            _require_stopped(told, "stopped a second time")

        run(life())

    @check()
    def test_stops_without_a_start(self, plugin: Any) -> None:
        """It can be stopped after a failed start and without a start."""
        _require_stopped(run(_stopping(plugin)), "stopped without having been started")

    @check()
    def test_stops_after_a_start_that_was_cancelled(self, plugin: Any) -> None:
        """A rollout cancelled while its environment starts ends soon, and leaves nothing that can't be stopped."""

        async def life() -> None:
            starting = asyncio.create_task(plugin.start())
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting], timeout=_SECONDS)
            require(
                starting.done(),
                f"its start continues {_SECONDS:g} seconds after it was cancelled",
                wanted="CancelledError passes through",
            )
            _require_stopped(await _stopping(plugin), "stopped after its start was cancelled")

        run(life())


async def _stopping(environment: Any) -> str | None:
    """The exception that its `stop` fails with."""
    try:
        await environment.stop()
    except PLUGIN_FAILURES as exc:
        return describe_error(exc)
    return None


def _require_stopped(told: str | None, when: str) -> None:
    require(told is None, f"{when}, it fails: {told}", wanted="`stop` releases what there is, and returns")
