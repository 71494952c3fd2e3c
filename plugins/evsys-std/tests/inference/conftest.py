import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_service import Faulty

from evsys_std.inference.openai_compatible import OpenAICompatible


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))


class QuickClock:
    """A clock whose sleeps only move its hands."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def asked() -> Callable[..., Any]:
    """Runs `work(client)` against a faulty service; gives what it returns, and the clock of its waits."""

    def run(service: Faulty, work: Callable[[OpenAICompatible], Awaitable[Any]], **params: Any) -> Any:
        clock = QuickClock()

        async def main() -> Any:
            async with asyncio.timeout(20), service.running() as url:
                client = OpenAICompatible(**{"model": "m", "base_url": url, **params})
                client.service.clock = clock
                return await work(client)

        return asyncio.run(main()), clock

    return run
