"""`evsys list`: what is installed, from which distribution. Imports no plugin unless `--check` asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evsys_cli.output import json_option, print_json

if TYPE_CHECKING:
    from evsys._plugins.registry import PluginEntry
    from evsys.errors import EvsysError

__all__ = ["list_plugins"]

HIDDEN_KINDS = frozenset({"plugin", "command"})


@click.command("list")
@click.argument("kind", required=False)
@click.option("--check", is_flag=True, help="Import each plugin and say which are broken.")
@click.option("--broken", is_flag=True, help="Show only broken plugins (implies --check).")
@json_option
def list_plugins(kind: str | None, *, check: bool, broken: bool, as_json: bool) -> None:
    """List the installed plugins, of one KIND if given."""
    from evsys import current_registry
    from evsys.protocols import KINDS

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"unknown kind {kind!r}; kinds are {', '.join(k for k in KINDS)}")
    registry = current_registry()
    failures: dict[tuple[str, str], EvsysError] = {}
    if check or broken:
        failures = {_key(entry): error for entry, error in registry.check() if error is not None}
    rows = [
        {
            "kind": entry.kind,
            "name": entry.name,
            "distribution": entry.distribution,
            "version": entry.version,
            "error": str(failures[_key(entry)]) if _key(entry) in failures else None,
        }
        for entry in registry.entries(kind)
        if _key(entry) in failures or (not broken and (kind is not None or entry.kind not in HIDDEN_KINDS))
    ]
    if as_json:
        print_json({"plugins": rows})
    else:
        _print_table(rows)
    if any(row["error"] for row in rows):
        raise click.exceptions.Exit(3)


def _key(entry: PluginEntry) -> tuple[str, str]:
    return entry.kind, entry.qualified


def _print_table(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No plugins.")
        return
    widths = [max(len(str(row[key])) for row in rows) for key in ("kind", "name")]
    for row in rows:
        origin = f"{row['distribution']} {row['version']}"
        click.echo(f"{row['kind']:<{widths[0]}}  {row['name']:<{widths[1]}}  {origin}")
        if row["error"]:
            click.echo(f"{'':<{widths[0]}}  broken: {row['error']}")
