"""`evsys dashboard`: experiments in the browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_runtime.command_records import records_folder, records_option
from evsys_runtime.commands import json_option, print_json
from evsys_runtime.terminal import echo

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["dashboard"]

PORT = 8420


@click.group(invoke_without_command=True)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port; 0 chooses a free one.",
)
@records_option
@json_option
@click.pass_context
def dashboard(ctx: click.Context, *, port: int, records: Path | None, as_json: bool) -> None:
    """Show the experiments of this project in the browser, on this machine only.

    Follows the records while experiments run, and needs no set-up: its database is in .evsys/cache, and is made again whenever it is gone.
    Prints its address once it listens, with --json as one document, and stops at Ctrl-C.
    """
    if ctx.invoked_subcommand is not None:
        return
    import asyncio

    from evsys_dashboard.local import local_dashboard

    asyncio.run(_serve(local_dashboard(records_folder(records), port=port), as_json=as_json))


async def _serve(serving: AbstractAsyncContextManager[str], *, as_json: bool) -> None:
    import asyncio
    import contextlib
    import signal

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows has no handlers; there Ctrl-C cancels
            loop.add_signal_handler(number, stopped.set)
    async with serving as address:
        if as_json:
            print_json({"url": address, "pid": os.getpid()}, compact=True)
        else:
            echo(f"The dashboard is on {address}/ until you press Ctrl-C.")
        await stopped.wait()
