"""Serve `evsys/tiny` until killed: `serve.py BACKEND FOLDER PORT`; prints its address once it listens."""

import asyncio
import sys
from pathlib import Path

from evsys_runtime.logging import configure, run_logger
from evsys_server.app import make_app


async def main(backend: str, folder: str, port: str) -> None:
    """Serve."""
    log = run_logger(None, configure(console_level="error"))
    async with make_app(
        backend=backend, directory=Path(folder), port=int(port), deterministic=True, log=log
    ) as base_url:
        sys.stdout.write(f"{base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
