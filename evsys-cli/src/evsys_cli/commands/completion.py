"""`evsys completion`: the script that makes a shell complete commands, kinds and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from evsys_runtime import echo

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: `evsys completion bash > ~/.local/share/bash-completion/completions/evsys`.
    """
    from evsys_cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click offers no completion for {shell}")
    echo(kind(cli, {}, "evsys", "_EVSYS_COMPLETE").source())
