"""Click groups that import a command when it is used, not when it is listed, and give hints for unknown names."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

import click

from evsys_cli.distribution_commands import brought_commands
from evsys_cli.table import COMMANDS, GROUPS, SUBCOMMANDS, CommandInfo

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["ExtendedGroup", "GuidedGroup", "LazyGroup"]


class GuidedGroup(click.Group):
    """A group that reports for an unknown name whether it is planned, or which name is spelt most like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a hint for an unknown name."""
        name = args[0] if args else ""
        wanted = name and not name.startswith("-") and not ctx.resilient_parsing
        if wanted and self.get_command(ctx, name) is None:
            self._refuse(ctx, name)
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        import difflib

        close = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"See '{ctx.command_path} --help'."
        ctx.fail(f"No such command '{name}'. {hint}")


class ExtendedGroup(GuidedGroup):
    """A group with more commands, which another distribution brings; see `SUBCOMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Its own names, then those of the other distribution."""
        return [*super().list_commands(ctx), *SUBCOMMANDS[str(self.name)]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Its own command, or import the other distribution's."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in SUBCOMMANDS[str(self.name)]:
            return own
        from evsys_cli.plugin_commands import plugin_command

        return plugin_command(f"{self.name}.{cmd_name}", expected=True)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, by the name that was given, without that of the group."""
        _, command, rest = super().resolve_command(ctx, args)
        return args[0] if command is not None else None, command, rest


class LazyGroup(GuidedGroup):
    """Finds its commands by `evsys_cli.table` and the `evsys.commands` entry points.

    `get_command` never raises for them, since click also calls it to list commands and to complete names. A missing
    or broken command is a stand-in that reports the error when it runs.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        info = COMMANDS.get(cmd_name)
        if info is None or info.distribution is not None:
            from evsys_cli.plugin_commands import plugin_command

            return plugin_command(cmd_name, expected=info is not None)
        module, _, attribute = info.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The available names, without importing the commands; those of plugins come after the table's."""
        from click.shell_completion import CompletionItem

        from evsys_cli.plugin_commands import plugin_command_names

        brought = {name: owner for name, owner in plugin_command_names().items() if "." not in name}
        names = {
            name: info.help for name, info in COMMANDS.items() if not info.distribution or name in brought
        }
        names |= {name: f"From {owner}." for name, owner in brought.items() if name not in names}
        found = [
            CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of the table and the commands of plugins, without importing any."""
        width = max(map(len, COMMANDS))  # the columns of all groups begin at the same place
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), _command_help(info)) for name, info in commands.items()]
                )
        if brought := brought_commands():
            with formatter.section("Commands of plugins"):
                formatter.write_dl(list(brought.items()))


def _command_help(info: CommandInfo) -> str:
    """The help of a command and, if its distribution isn't installed, how to get it; found without importing it."""
    if info.distribution is None or _is_importable(info.distribution.replace("-", "_")):
        return info.help
    return f"{info.help} (pip install {info.distribution})"


def _is_importable(package: str) -> bool:
    return package in sys.modules or find_spec(package) is not None
