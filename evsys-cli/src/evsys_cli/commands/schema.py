"""`evsys schema`: the JSON Schema of one plugin's parameters, or of the whole experiment file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from evsys_runtime import echo
from evsys_runtime.commands import json_text

if TYPE_CHECKING:
    from evsys import Registry

__all__ = ["schema"]


PLUGIN_IS_WRONG = 3


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys.protocols import KINDS

    return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of installed plugins. Completion imports no plugins, so those of the project are missing."""
    from evsys import current_registry
    from evsys.protocols import KINDS

    kind = ctx.params.get("kind")
    entries = current_registry().entries(kind) if kind in KINDS else []
    return [CompletionItem(entry.name) for entry in entries if entry.name.startswith(incomplete)]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete_kind)
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option(
    "--experiment",
    is_flag=True,
    help="Print the schema of the experiment file, with the parameters of every plugin.",
)
def schema(kind: str | None, name: str | None, *, experiment: bool) -> None:
    """Print the JSON Schema of plugin NAME of KIND (`evsys schema algorithm sft`).

    With a KIND alone, print the names of that kind; without anything, the kinds. Inside a project, its own plugins are
    there too.
    """
    from evsys.protocols import KINDS
    from evsys_cli.plugin_kinds import refuse_unknown_kind

    if kind is None and not experiment:
        echo("\n".join(KINDS))
        return
    if kind is not None:
        refuse_unknown_kind(kind)
    from evsys_cli.project import project_plugins

    known = project_plugins()
    if known.error is not None:
        echo(f"The project's own plugins are missing: {known.error}", err=True)
    if experiment:
        from evsys_runtime.config.schema import experiment_schema

        echo(json_text(experiment_schema(known.registry), sys.stdout))
    elif kind is not None and name is not None:
        # errors elsewhere don't matter to the schema of an installed plugin
        echo(json_text(_schema(known.registry, kind, name), sys.stdout))
        return
    else:
        echo("\n".join(entry.name for entry in known.registry.entries(kind)))
    if known.error is not None:
        raise click.exceptions.Exit(PLUGIN_IS_WRONG)


def _schema(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    """The schema of a plugin; of an algorithm also the bands in which it wants its metrics, under `x-health`."""
    from evsys.optional import declared

    schema = registry.schema(kind, name)
    health = declared(registry.get(kind, name), "health") if kind == "algorithm" else None
    if not isinstance(health, Mapping):
        return schema
    parts = ("low", "high", "why", "lasting")
    bands = {metric: {part: getattr(band, part) for part in parts} for metric, band in health.items()}
    return {**schema, "x-health": bands} if bands else schema
