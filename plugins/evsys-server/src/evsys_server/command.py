"""`evsys serve`: a server on this machine, until it is interrupted."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import json_or_text, named_texts

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["serve"]

KEY = "EVSYS_SERVE_KEY"


@click.command()
@click.option(
    "--backend", default="local", show_default=True, help="Backend to compute with: local, mock, ..."
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Base model to serve; may be repeated.  [default: evsys/tiny]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8410,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port; 0 chooses a free one.",
)
@click.option(
    "--key-env",
    default=KEY,
    show_default=True,
    metavar="NAME",
    help="Environment variable with the key that clients must send. Without it the server generates a key and prints it.",
)
@click.option(
    "--no-key",
    is_flag=True,
    help="Require no key from programs on this machine, including agents that run here.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".evsys/server"),
    show_default=True,
    help="Directory for checkpoints and logs.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the backend; the value is JSON or text.",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="Compute each sampling request, or batch named by a client, on its own, so that results don't depend on other "
    "requests. Slower.",
)
@click.option(
    "--log-requests",
    is_flag=True,
    help="Append each conversation to requests.jsonl in the directory, with what users wrote; see `evsys traces import`.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no log lines.")
@json_option
def serve(
    *,
    backend: str,
    models: tuple[str, ...],
    host: str,
    port: int,
    key_env: str,
    no_key: bool,
    directory: Path,
    params: tuple[str, ...],
    deterministic: bool,
    log_requests: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Serve base models to clients of the Tinker protocol, and to OpenAI clients under /v1.

    Prints its address and key once it listens (with --json, as one document), and stops on Ctrl-C. Checkpoints stay in
    the directory, where the next server finds them.
    """
    import asyncio

    from evsys_record import make_directory
    from evsys_runtime.blas_kernel import use_kernel
    from evsys_runtime.logging import configure, run_logger

    use_kernel()  # before anything imports numpy
    settings = {name: json_or_text(text) for name, text in named_texts(params)}
    log = run_logger(
        make_directory(directory) / "server.log.jsonl", configure(console_level=None if quiet else "info")
    )
    given = os.environ.get(key_env) or None
    made = None if given or no_key else f"tml-{secrets.token_urlsafe(24)}"  # clients insist on this prefix
    options = {
        "backend": backend,
        "models": tuple(dict.fromkeys(models)) or ("evsys/tiny",),
        "params": settings,
        "host": host,
        "port": port,
        "key": None if no_key else given or made,
        "directory": directory,
        "deterministic": deterministic,
        "log_requests": log_requests,
    }
    asyncio.run(_serve(options, log, made_key=made, key_env=key_env, as_json=as_json))


async def _serve(
    options: dict[str, Any], log: Log, *, made_key: str | None, key_env: str, as_json: bool
) -> None:
    import asyncio
    import contextlib
    import signal

    from evsys_server.app import make_app

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows has no handlers; there Ctrl-C cancels
            loop.add_signal_handler(number, stopped.set)
    async with make_app(log=log, **options) as base_url:
        ready = {"base_url": base_url, "openai_base_url": f"{base_url}/v1", "pid": os.getpid()}
        if as_json:
            document = {**ready, "backend": options["backend"], "models": list(options["models"])}
            document["key"] = made_key
            print_json(document, compact=True)  # on one line: no one can wait for the end of this output
        else:
            models = ", ".join(options["models"])
            echo(f"Serving {models} on {base_url} (OpenAI clients: {base_url}/v1). Ctrl-C stops.")
            if made_key is not None:
                echo(f"Clients send this key: export {key_env}={made_key}")
        await stopped.wait()
        log.info("server.stopping")
