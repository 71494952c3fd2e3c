"""`evsys dashboard`: experiments in the browser, of this project or of a team."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json, records_folder, records_option
from evsys_runtime.commands import column_lines

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["dashboard"]

PORT = 8420
DIRECTORY = Path(".evsys/dashboard")

_database_option = click.option(
    "--database",
    envvar="EVSYS_DATABASE",
    metavar="URL",
    help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.  [default: EVSYS_DATABASE, or a SQLite file in the directory]",
)
_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=DIRECTORY,
    show_default=True,
    help="Directory for the files of records, which are made again whenever they are gone.",
)


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


@dashboard.command()
@_database_option
@click.option(
    "--listen",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 chooses a free one.",
)
@_directory_option
@json_option
def serve(*, database: str | None, listen: str, directory: Path, as_json: bool) -> None:
    """Serve a team's experiments.

    Accepts records sent with `evsys sync`, and shows them to anyone with a key. Make the first key with `evsys dashboard keys create`.
    """
    import asyncio

    from evsys_dashboard.team import team_dashboard

    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{listen!r} isn't HOST:PORT", param_hint="'--listen'")
    serving = team_dashboard(
        _url(database, directory), directory, host=host.strip("[]") or "127.0.0.1", port=int(port)
    )
    asyncio.run(_serve(serving, as_json=as_json))


@dashboard.group()
def keys() -> None:
    """Make, list and revoke the keys of a team's server."""


@keys.command()
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(["read", "write", "test", "admin"]),
    help="Scope of the key; may be given several times.",
)
@click.option("--project", help="The one project that the key is for.  [default: all]")
@click.option("--note", help="Who or what it is for.")
@_database_option
@_directory_option
@json_option
def create(
    *,
    scopes: tuple[str, ...],
    project: str | None,
    note: str | None,
    database: str | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Make a key, and print it: this once, since only its hash is kept."""
    with _open(database, directory) as store:
        from evsys_dashboard.store.audit import write_audit
        from evsys_dashboard.store.keys import Keys
        from evsys_record import result_tree

        key, text = Keys(store).create(scopes, project=project, note=note)
        write_audit(store, "key.created", project=project, prefix=key.prefix, scopes=list(key.scopes))
        if as_json:
            tree = result_tree(key)
            tree.pop("format")
            print_json({"key": tree, "text": text})
        else:
            echo(text)
            where = "all projects" if project is None else f"project {project}"
            echo(f"Grants {', '.join(key.scopes)} on {where}. It is not shown again.", err=True)


@keys.command("list")
@_database_option
@_directory_option
@json_option
def list_keys(*, database: str | None, directory: Path, as_json: bool) -> None:
    """List the keys by their printable parts."""
    with _open(database, directory) as store:
        from evsys_dashboard.store.keys import Keys
        from evsys_record.encoding import as_tree

        found = Keys(store).all()
        if as_json:
            print_json({"keys": [as_tree(key) for key in found]})
            return
        rows = [
            (
                key.prefix,
                ", ".join(key.scopes),
                key.project or "all",
                key.created[:10],
                key.revoked or "",
                key.note or "",
            )
            for key in found
        ]
        for line in column_lines(("key", "scopes", "project", "created", "revoked", "note"), rows):
            echo(line)


@keys.command()
@click.argument("prefix")
@_database_option
@_directory_option
def revoke(prefix: str, *, database: str | None, directory: Path) -> None:
    """Revoke the key that begins with PREFIX, and end the browser sessions that began with it."""
    with _open(database, directory) as store:
        from evsys_dashboard.store.audit import write_audit
        from evsys_dashboard.store.keys import Keys

        key = Keys(store).revoke(prefix)
        write_audit(store, "key.revoked", project=key.project, prefix=key.prefix)
        echo(f"{key.prefix} is revoked")


def _url(database: str | None, directory: Path) -> str:
    """The intended URL; by default that of a SQLite file in the directory, which is made."""
    if database is not None:
        return database
    from evsys_dashboard.store.database import sqlite_url
    from evsys_record import make_directory

    return sqlite_url(make_directory(directory) / "store.sqlite")


def _open(database: str | None, directory: Path) -> Any:
    from contextlib import closing

    from evsys_dashboard.store.database import Database

    return closing(Database(_url(database, directory)))


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
