"""A click group that imports a command when it is used, not when it is listed."""

from __future__ import annotations

import difflib
from importlib import import_module

import click

from evsys_cli.table import COMMANDS, PLANNED, CommandInfo

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Knows its commands by `evsys_cli.table` and the `evsys.commands` entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is asked for."""
        info = COMMANDS.get(cmd_name)
        if info is None:
            return self._plugin_command(cmd_name, None)
        if info.distribution is not None:
            return self._plugin_command(cmd_name, info)
        module, _, attribute = info.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def _plugin_command(self, name: str, info: CommandInfo | None) -> click.Command | None:
        from evsys import current_registry

        registry = current_registry()
        if any(entry.name == name for entry in registry.entries("command")):
            command: click.Command = registry.get("command", name)
            return command
        if info is None:
            return None
        raise click.ClickException(
            f"'evsys {name}' comes with {info.distribution}, which isn't installed: pip install {info.distribution}"
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a hint for a name that isn't there."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            if name in PLANNED:
                ctx.fail(f"'evsys {name}' is not in this version.")
            close = difflib.get_close_matches(name, list(COMMANDS), n=1)
            hint = f" Did you mean '{close[0]}'?" if close else " See 'evsys --help'."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table; importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, info.help) for name, info in COMMANDS.items()])
