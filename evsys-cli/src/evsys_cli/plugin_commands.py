"""Commands that distributions bring through the `evsys.commands` entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evsys import Registry, current_registry
from evsys_cli.table import COMMANDS

if TYPE_CHECKING:
    from evsys.errors import PluginError

__all__ = ["plugin_command", "plugin_command_names", "unreachable_commands"]


def plugin_command_names() -> dict[str, str]:
    """The name of each installed command and the distribution that brings it. Imports no plugin."""
    return {entry.name: entry.distribution for entry in current_registry().entries("command")}


def unreachable_commands(registry: Registry) -> dict[str, PluginError]:
    """By qualified name, an error for each installed command whose name is a command of evsys itself, which `evsys NAME` runs instead."""
    from evsys.errors import PluginConflictError

    return {
        entry.qualified: PluginConflictError(
            f"{entry} ({entry.value}) can't be run: `evsys {entry.name}` is a command of evsys-cli",
            hint="give it another name",
        )
        for entry in registry.entries("command")
        if entry.name in COMMANDS and COMMANDS[entry.name].distribution is None
    }


def plugin_command(name: str, *, expected: bool) -> click.Command | None:
    """Import the command; if that fails, return one that reports the error when it runs.

    Args:
        name: the command.
        expected: the command is known to exist, so one that isn't installed is missing, not misspelt. For other names
            None is returned.
    """
    from evsys.errors import PluginContractError, PluginError, PluginNotFoundError  # `list` needs none

    try:
        command = current_registry().get("command", name)
        if not isinstance(command, click.Command):
            what = type(command).__name__
            entry = current_registry().find("command", name)
            raise PluginContractError(f"{entry} is not a click command but of type {what!r}")
    except PluginNotFoundError as exc:
        return _stand_in(name, exc) if expected else None
    except PluginError as exc:
        return _stand_in(name, exc)
    return command


def _stand_in(name: str, error: PluginError) -> click.Command:
    def refuse() -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        help=f"Can't be used here: {error}",
        short_help=f"Can't be used: {error.hint or error.message}",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
