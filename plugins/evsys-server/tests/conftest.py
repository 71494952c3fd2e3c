import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from wire_client import WireClient

from evsys_server.app import make_app


@pytest.fixture
def with_server(tmp_path: Path) -> Callable[..., Any]:
    """Runs `work(client)` against a server on the mock backend, by default on the test's own folder."""

    def run[T](work: Callable[[WireClient], Awaitable[T]], **options: Any) -> T:
        async def main() -> T:
            async with (
                make_app(**{"directory": tmp_path / "server", **options}) as base_url,
                aiohttp.ClientSession(headers={"X-API-Key": options.get("key") or "tml-x"}) as session,
            ):
                return await work(WireClient(base_url, session))

        return asyncio.run(main())

    return run
