"""Click groups that import a command when it is used, not when it is listed, and that know what isn't there."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import click

from evsys_cli.brought import brought_commands
from evsys_cli.table import COMMANDS, PLANNED, CommandInfo

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["GuidedGroup", "LazyGroup"]


class GuidedGroup(click.Group):
    """A group that says of a name it lacks whether that is planned, or which one is spelt most like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a hint for a name that isn't there."""
        name = args[0] if args else ""
        wanted = name and not name.startswith("-") and not ctx.resilient_parsing
        if wanted and self.get_command(ctx, name) is None:
            self._refuse(ctx, name)
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        import difflib

        _refuse_planned(ctx, name)
        close = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"See '{ctx.command_path} --help'."
        ctx.fail(f"No such command '{name}'. {hint}")


class LazyGroup(GuidedGroup):
    """Knows its commands by `evsys_cli.table` and the `evsys.commands` entry points.

    `get_command` raises for none of them, since click asks it for commands that nobody means to run: to list them, to
    complete a name. What is missing or broken is a command that says so when it runs.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is asked for."""
        info = COMMANDS.get(cmd_name)
        if info is None or info.distribution is not None:
            from evsys_cli.plugin_commands import plugin_command

            return plugin_command(cmd_name, expected=info is not None)
        module, _, attribute = info.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Like click's; an option that is planned is said to be."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as exc:
            if exc.ctx is not None:
                _refuse_planned(exc.ctx, exc.option_name)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that can be run, without importing the commands; those of plugins come after the table's."""
        from click.shell_completion import CompletionItem

        from evsys_cli.plugin_commands import plugin_command_names

        brought = plugin_command_names()
        names = {
            name: info.help for name, info in COMMANDS.items() if not info.distribution or name in brought
        }
        names |= {name: f"From {owner}." for name, owner in brought.items() if name not in names}
        found = [
            CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table and the names of the commands that plugins bring; importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _described(info)) for name, info in COMMANDS.items()])
        if brought := brought_commands():
            with formatter.section("Commands of plugins"):
                formatter.write_dl(list(brought.items()))


def _described(info: CommandInfo) -> str:
    """The help of a command, and how to get it where its distribution isn't there; looked for without importing it."""
    if info.distribution is None or _is_importable(info.distribution.replace("-", "_")):
        return info.help
    return f"{info.help} (pip install {info.distribution})"


def _is_importable(package: str) -> bool:
    return package in sys.modules or find_spec(package) is not None


def _refuse_planned(ctx: click.Context, name: str) -> None:
    """Fail with a straight answer where a command or an option of `ctx` belongs to a later version."""
    root = ctx.find_root().command_path
    if f"{ctx.command_path} {name}".removeprefix(f"{root} ") in PLANNED:
        from evsys._plugins.refusals import NOT_YET

        ctx.fail(f"'{ctx.command_path} {name}' is {NOT_YET}.")
