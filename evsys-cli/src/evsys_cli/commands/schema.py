"""`evsys schema`: the JSON Schema or the outline of a plugin's parameters, the experiment file or a result."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import json_text

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
@click.option("--result", metavar="NAME", help="Print the schema of what a command prints with --json.")
@click.option("--outline", is_flag=True, help="Print keys, types and defaults in few words instead.")
@json_option
def schema(
    kind: str | None, name: str | None, *, experiment: bool, result: str | None, outline: bool, as_json: bool
) -> None:
    """Print the JSON Schema of plugin NAME of KIND (`evsys schema algorithm sft`).

    With a KIND alone, print the names of that kind; without anything, the kinds. Inside a project, its own plugins are
    there too. With --outline, one line a key: its type and default, and `!` for those required.
    """
    from evsys.protocols import KINDS
    from evsys_cli.plugin_kinds import refuse_unknown_kind

    if kind is not None:
        refuse_unknown_kind(kind)
    asked = [kind is not None, experiment, result is not None]
    if sum(asked) > 1:
        raise click.UsageError("choose one of KIND, --experiment and --result")
    if not any(asked) and not as_json:
        echo("\n".join(KINDS))
        return
    from evsys_cli.project import project_plugins
    from evsys_runtime.tools.describing import EXPERIMENT, RESULT, describe

    of = EXPERIMENT if experiment else RESULT if result is not None else kind
    known = project_plugins()
    if known.error is not None:
        echo(f"The project's own plugins are missing: {known.error}", err=True)
    found = describe(of, result or name, known.registry, full=not outline)
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(found))
    elif found.schema is not None:
        echo(json_text(found.schema, sys.stdout))
    else:
        echo(found.outline or "\n".join(found.names))
    if known.error is not None and name is None and result is None:
        raise click.exceptions.Exit(PLUGIN_IS_WRONG)
