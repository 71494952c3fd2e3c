"""`evsys new-plugin`: a package with working plugins of any kind, ready to be changed, checked and published."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from evsys_runtime import echo, json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evsys_cli.scaffold.plugin_names import PluginNames

__all__ = ["new_plugin"]


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys.protocols import KINDS

    return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


@click.command("new-plugin")
@click.argument("kind", required=False, shell_complete=_complete_kind)
@click.argument("name", required=False)
@click.option("--distribution", metavar="NAME", help="Name of the distribution.  [default: evsys-NAME]")
@click.option(
    "--add",
    "added",
    metavar="KIND:NAME",
    multiple=True,
    help="Add a plugin to the distribution, new or existing; repeatable.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Directory to write to.  [default: ./DISTRIBUTION]",
)
@click.option("--author", help="Author: 'Name' or 'Name <name@example.org>'.")
@json_option
def new_plugin(
    kind: str | None,
    name: str | None,
    *,
    distribution: str | None,
    added: tuple[str, ...],
    directory: Path | None,
    author: str | None,
    as_json: bool,
) -> None:
    """Create a package with a working plugin NAME of the kind KIND, such as `verifier` or `transform`.

    `evsys schema` lists the kinds. A folder that is not empty is left alone, unless `--distribution` and `--add`
    add plugins to the distribution in it.
    """
    from evsys_cli.scaffold.existing_package import add_plugins, distribution_in
    from evsys_cli.scaffold.plugin_package import Author, write_plugin_package

    try:
        person = None if author is None else Author.parse(author)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    plugins = _named_plugins(kind, name, distribution, added)
    for names in plugins:
        _refuse_name(names)
    own = plugins[0].distribution
    target = Path(own) if directory is None else directory
    if distribution_in(target) == own and kind is None:
        _refuse_addition(plugins, target)
        written = add_plugins(plugins, target)
    else:
        _refuse_full(target)
        written = write_plugin_package(plugins, target, person)
    for each in dict.fromkeys(names.kind for names in plugins):
        _warn_of_later_kind(each)
    _show(plugins, target, written, as_json=as_json)


def _named_plugins(
    kind: str | None, name: str | None, distribution: str | None, added: Sequence[str]
) -> list[PluginNames]:
    """The plugins that the arguments and the options name, the argument's own first."""
    from evsys_cli.scaffold.plugin_names import fault_of_distribution, names_in, names_of

    if kind is not None and name is None:
        raise click.UsageError("missing NAME; write KIND NAME, or --distribution NAME --add KIND:NAME")
    if kind is None and not (distribution and added):
        raise click.UsageError("write KIND NAME, or --distribution NAME --add KIND:NAME")
    fault = None if distribution is None else fault_of_distribution(distribution)
    if fault is not None:
        raise click.UsageError(fault)
    plugins: list[PluginNames] = []
    if kind is not None and name is not None:
        _refuse_spelling(kind, name)
        plugins.append(names_of(kind, name, distribution))
        distribution = plugins[0].distribution
    for text in added:
        one, mark, called = text.partition(":")
        if not mark:
            raise click.UsageError(f"--add {text!r} isn't of the form KIND:NAME")
        _refuse_spelling(one, called)
        plugins.append(names_in(str(distribution), one, called))
    twice = [each for each in plugins if plugins.count(each) > 1]
    if twice:
        raise click.UsageError(f"the {twice[0].kind} {twice[0].name!r} is given twice")
    return plugins


def _show(plugins: Sequence[PluginNames], target: Path, written: Sequence[Path], *, as_json: bool) -> None:
    first = plugins[0]
    steps = _next_steps(first, target)
    if as_json:
        paths = [path.relative_to(target).as_posix() for path in written]
        facts = {
            "kind": first.kind,
            "name": first.name,
            "distribution": first.distribution,
            "package": first.top_package,
            "plugins": [
                {"kind": names.kind, "name": names.name, "package": names.package} for names in plugins
            ],
        }
        print_json({**facts, "directory": str(target), "files": paths, "next": steps})
        return
    for path in written:
        echo(f"wrote {path}")
    echo("\nNext:")
    for step in steps:
        echo(f"  {step}")


def _warn_of_later_kind(kind: str) -> None:
    """Warn if no experiment of this version can use plugins of a kind."""
    from evsys_runtime.config.later import NOT_YET, later_key_of_kind

    key = later_key_of_kind(kind)
    if key is not None:
        echo(
            f"warning: no experiment can use a {kind} yet, since $.{key} is {NOT_YET}; "
            "its conformance checks run",
            err=True,
        )


def _refuse_spelling(kind: str, name: str) -> None:
    """Refuse an unknown kind, and a name that a plugin of the kind can't have."""
    from evsys_cli.plugin_kinds import refuse_unknown_kind
    from evsys_cli.scaffold.plugin_names import fault_of_name

    refuse_unknown_kind(kind)
    fault = fault_of_name(kind, name)
    if fault is not None:
        raise click.UsageError(fault)


def _refuse_name(names: PluginNames) -> None:
    """Refuse a name already taken: of two installed plugins with one name, neither can be used by its short name."""
    from evsys import current_registry
    from evsys_cli.table import COMMANDS

    if names.kind == "command" and names.name in COMMANDS:
        raise click.UsageError(f"'evsys {names.name}' is already a command; choose another name")
    for entry in current_registry().entries(names.kind):
        if entry.name == names.name and entry.distribution != names.distribution:
            raise click.UsageError(
                f"{entry.distribution} already provides {names.kind} {names.name!r}; choose another name"
            )


def _refuse_addition(plugins: Sequence[PluginNames], target: Path) -> None:
    from evsys_cli.scaffold.existing_package import fault_of_addition

    fault = fault_of_addition(plugins, target)
    if fault is not None:
        raise click.UsageError(fault)


def _refuse_full(target: Path) -> None:
    if os.path.lexists(target) and not target.is_dir():
        raise click.UsageError(f"{target} is a file; choose another folder with --directory")
    if target.is_dir() and any(target.iterdir()):
        raise click.UsageError(
            f"{target} already exists and is not empty; choose another folder with --directory"
        )


def _next_steps(names: PluginNames, target: Path) -> list[str]:
    return [
        f"cd {shlex.quote(str(target))}",
        "uv pip install --editable . --group dev",
        "pytest",
        f"evsys conformance {names.distribution}",
    ]
