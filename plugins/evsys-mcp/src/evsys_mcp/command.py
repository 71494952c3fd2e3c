"""`evsys mcp`: the tools of a project for agents, over standard input and output or HTTP."""

from __future__ import annotations

import asyncio
import os
import secrets
from importlib.metadata import version
from pathlib import Path

import click

from evsys_runtime import Toolbox, echo

__all__ = ["mcp"]

KEY = "EVSYS_MCP_KEY"
FEWEST_CHARACTERS = 16


@click.command()
@click.option(
    "--project",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="Project to serve.  [default: that of the current folder]",
)
@click.option("--http", is_flag=True, help="Listen on a port instead of standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http, the address to listen on.")
@click.option(
    "--port", default=8411, show_default=True, type=click.IntRange(1, 65535), help="With --http, the port."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="With --http, another name that clients call this machine by; may be repeated.",
)
@click.option(
    "--key-env",
    default=KEY,
    show_default=True,
    metavar="NAME",
    help="With --http, the environment variable with the key. Without it a key is generated and printed.",
)
def mcp(*, project: Path, http: bool, host: str, port: int, names: tuple[str, ...], key_env: str) -> None:
    """Serve the tools of a project to agents over the Model Context Protocol.

    Agents start it as `evsys mcp` and talk to it over standard input and output. With --http, clients connect to
    http://HOST:PORT/mcp and send the key as `Authorization: Bearer KEY`.
    """
    from evsys_mcp.server import server_of

    server = server_of(Toolbox(project), version=version("evsys-mcp"))
    if not http:
        from mcp.server.stdio import stdio_server

        async def serve() -> None:
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())

        asyncio.run(serve())
        return
    import uvicorn

    from evsys_mcp.http import PATH, http_app

    app = http_app(server, host=host, key=_key(key_env), names=names)
    echo(f"http://{host}:{port}{PATH}", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)


def _key(name: str) -> str:
    """The key of the environment, or a new one, which is printed."""
    given = os.environ.get(name, "")
    if given and len(given) < FEWEST_CHARACTERS:
        raise click.UsageError(f"the key in {name} is shorter than {FEWEST_CHARACTERS} characters")
    if given:
        return given
    made = secrets.token_urlsafe(24)
    echo(f"key: {made}", err=True)
    return made
