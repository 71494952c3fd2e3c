"""`evsys list`: what can be named here, and where it is from. Imports no installed plugin unless `--check` asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import column_lines

if TYPE_CHECKING:
    from evsys import Registry
    from evsys._plugins.registry import PluginEntry
    from evsys.errors import EvsysError
    from evsys_cli.project import Known

__all__ = ["list_plugins"]

HIDDEN_KINDS = frozenset({"plugin", "command"})
PLUGIN_IS_WRONG = 3


@click.command("list")
@click.argument("kind", required=False)
@click.option(
    "--check",
    is_flag=True,
    help="Import each plugin, and report plugins that are broken, slow to import, or whose names clash.",
)
@click.option("--broken", is_flag=True, help="Show only broken plugins (implies --check).")
@json_option
def list_plugins(kind: str | None, *, check: bool, broken: bool, as_json: bool) -> None:
    """List installed plugins and those of the current project, optionally of one KIND."""
    from evsys_cli.plugin_kinds import refuse_unknown_kind
    from evsys_cli.project import project_plugins

    if kind is not None:
        refuse_unknown_kind(kind)
    known = project_plugins()
    entries = known.registry.entries(kind)
    check = check or broken
    failures = _failures(known.registry, kind, check=check)
    clashes = _shared_names(known.registry, entries) if check else []
    warnings = list(dict.fromkeys([*known.registry.warnings, *clashes]))
    listed = [] if broken else [e for e in entries if kind is not None or e.kind not in HIDDEN_KINDS]
    rows = [
        _row(entry, failures.get(_key(entry)))
        for entry in entries
        if _key(entry) in failures or entry in listed
    ]
    wrong = any(row["error"] for row in rows)
    if as_json:
        print_json({"plugins": rows, "project": _project(known), "warnings": warnings})
    else:
        _print_table(rows, none="No broken plugin." if broken else "No plugins.")
        if check and not wrong:
            echo(f"{len(entries)} plugin{'s' * (len(entries) != 1)} imported without problems.")
        _print_warnings(warnings, known)
    if known.error is not None or wrong:
        raise click.exceptions.Exit(PLUGIN_IS_WRONG)


def _failures(registry: Registry, kind: str | None, *, check: bool) -> dict[tuple[str, str], EvsysError]:
    """The error of each broken plugin; without `check` only commands are looked at, since nothing is imported."""
    from evsys_cli.plugin_commands import unreachable_commands

    failures = {}
    if check:
        failures = {_key(entry): error for entry, error in registry.check() if error is not None}
    if kind == "command" or (kind is None and check):
        failures |= {("command", name): error for name, error in unreachable_commands(registry).items()}
    return failures


def _print_warnings(warnings: Sequence[str], known: Known) -> None:
    for warning in warnings:
        echo(f"warning: {warning}", err=True)
    if known.error is not None:
        echo(f"The project's own plugins are missing: {known.error}", err=True)


def _key(entry: PluginEntry) -> tuple[str, str]:
    return entry.kind, entry.qualified


def _shared_names(registry: Registry, entries: list[PluginEntry]) -> list[str]:
    """Warnings for names that several distributions offer; the registry itself notes those hidden by the project's own."""
    from evsys.errors import PluginConflictError

    owners: dict[tuple[str, str], set[str]] = {}
    for entry in entries:
        owners.setdefault((entry.kind, entry.name), set()).add(entry.distribution)
    said = []
    for (kind, name), offering in owners.items():
        if len(offering) > 1:
            try:
                registry.find(kind, name)
            except PluginConflictError as exc:
                said.append(str(exc))
    return said


def _row(entry: PluginEntry, error: EvsysError | None) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "value": entry.value,
        "error": None if error is None else str(error),
    }


def _project(known: Known) -> dict[str, Any] | None:
    """The path of the project and the reason why its plugins are missing; None outside a project."""
    if known.root is None and known.error is None:
        return None
    return {
        "root": None if known.root is None else str(known.root),
        "error": None if known.error is None else str(known.error),
    }


def _print_table(rows: list[dict[str, Any]], *, none: str) -> None:
    if not rows:
        echo(none)
        return
    header, *lines = column_lines(
        ("kind", "name", "from"), [(row["kind"], row["name"], _origin(row)) for row in rows]
    )
    echo(header)
    for row, line in zip(rows, lines, strict=True):
        echo(line)
        if row["error"]:
            echo(f"  broken: {row['error']}")


def _origin(row: dict[str, Any]) -> str:
    if row["version"]:
        return f"{row['distribution']} {row['version']}"
    return f"{row['distribution']} ({row['value']})"
