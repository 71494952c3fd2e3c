"""`evsys schema`: the JSON Schema of one plugin's parameters, or of the whole experiment file."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

from evsys_cli.output import json_text

__all__ = ["schema"]


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys.protocols import KINDS

    return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys import current_registry

    entries = current_registry().entries(ctx.params.get("kind"))
    return [CompletionItem(entry.name) for entry in entries if entry.name.startswith(incomplete)]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete_kind)
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option(
    "--experiment", is_flag=True, help="The whole experiment file, with every installed plugin's parameters."
)
def schema(kind: str | None, name: str | None, *, experiment: bool) -> None:
    """Print the JSON Schema of plugin NAME of KIND (`evsys schema algorithm sft`).

    With a KIND alone, print the names of that kind; without anything, the kinds.
    """
    from evsys import current_registry
    from evsys.protocols import KINDS

    if experiment:
        from evsys_runtime.config.schema import experiment_schema

        click.echo(json_text(experiment_schema(), sys.stdout))
        return
    if kind is None:
        click.echo("\n".join(KINDS))
        return
    if kind not in KINDS:
        raise click.UsageError(f"unknown kind {kind!r}; kinds are {', '.join(KINDS)}")
    registry = current_registry()
    if name is None:
        click.echo("\n".join(entry.name for entry in registry.entries(kind)))
        return
    click.echo(json_text(registry.schema(kind, name), sys.stdout))
