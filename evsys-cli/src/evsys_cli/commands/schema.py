"""`evsys schema`: the JSON Schema of one plugin's parameters, or of the whole experiment file."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

from evsys_runtime.commands import json_text

__all__ = ["schema"]


PLUGIN_IS_WRONG = 3


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys.protocols import KINDS

    return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of what is installed: to complete a name runs nobody's code, so a project's own aren't among them."""
    from evsys import current_registry
    from evsys.protocols import KINDS

    kind = ctx.params.get("kind")
    entries = current_registry().entries(kind) if kind in KINDS else []
    return [CompletionItem(entry.name) for entry in entries if entry.name.startswith(incomplete)]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete_kind)
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option(
    "--experiment", is_flag=True, help="The whole experiment file, with the parameters of every plugin."
)
def schema(kind: str | None, name: str | None, *, experiment: bool) -> None:
    """Print the JSON Schema of plugin NAME of KIND (`evsys schema algorithm sft`).

    With a KIND alone, print the names of that kind; without anything, the kinds. Inside a project, its own plugins are
    there too.
    """
    from evsys.protocols import KINDS

    if kind is None and not experiment:
        click.echo("\n".join(KINDS))
        return
    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"unknown kind {kind!r}; kinds are {', '.join(KINDS)}")
    from evsys_cli.project import known_here

    known = known_here()
    if known.error is not None:
        click.echo(f"The project's own plugins are missing: {known.error}", err=True)
    if experiment:
        from evsys_runtime.config.schema import experiment_schema

        click.echo(json_text(experiment_schema(known.registry), sys.stdout))
    elif kind is not None and name is not None:
        # The schema of an installed plugin is all that was asked for, whatever is wrong elsewhere.
        click.echo(json_text(known.registry.schema(kind, name), sys.stdout))
        return
    else:
        click.echo("\n".join(entry.name for entry in known.registry.entries(kind)))
    if known.error is not None:
        raise click.exceptions.Exit(PLUGIN_IS_WRONG)
