"""`evsys new-plugin`: a package with a working plugin of any kind, ready to be changed, checked and published."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from evsys_runtime.commands import json_option, print_json
from evsys_runtime.terminal import echo

if TYPE_CHECKING:
    from evsys_cli.scaffold.plugin_names import PluginNames

__all__ = ["new_plugin"]


def _complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from evsys.protocols import KINDS

    return [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]


@click.command("new-plugin")
@click.argument("kind", shell_complete=_complete_kind)
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Directory to write to.  [default: ./evsys-NAME]",
)
@click.option("--author", help="Author: 'Name' or 'Name <name@example.org>'.")
@json_option
def new_plugin(kind: str, name: str, *, directory: Path | None, author: str | None, as_json: bool) -> None:
    """Create a package with a working plugin called NAME of a KIND, such as `verifier` or `transform`.

    `evsys schema` lists the kinds. A folder with something in it is left alone.
    """
    from evsys_cli.scaffold.plugin_names import names_of
    from evsys_cli.scaffold.plugin_package import Author, write_plugin_package

    try:
        person = None if author is None else Author.parse(author)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    _refuse_unknown_kind(kind)
    _refuse_name(kind, name)
    names = names_of(kind, name)
    target = Path(names.distribution) if directory is None else directory
    _refuse_full(target)
    written = write_plugin_package(names, target, person)
    steps = _next_steps(names, target)
    _warn_of_later_kind(kind)
    if as_json:
        paths = [path.relative_to(target).as_posix() for path in written]
        facts = {"kind": kind, "name": name, "distribution": names.distribution, "package": names.package}
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


def _refuse_unknown_kind(kind: str) -> None:
    from difflib import get_close_matches

    from evsys.protocols import KINDS

    if kind not in KINDS:
        close = get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"kinds are {', '.join(KINDS)}"
        raise click.UsageError(f"unknown kind {kind!r}; {hint}")


def _refuse_name(kind: str, name: str) -> None:
    """Refuse a name that is invalid or taken: with two plugins of one name installed, neither can be used by its short name."""
    from evsys import current_registry
    from evsys_cli.scaffold.plugin_names import fault_of_name, names_of
    from evsys_cli.table import COMMANDS, PLANNED

    fault = fault_of_name(kind, name)
    if fault is not None:
        raise click.UsageError(fault)
    if kind == "command" and (name in COMMANDS or name in PLANNED):
        raise click.UsageError(f"'evsys {name}' is already a command; choose another name")
    own = names_of(kind, name).distribution
    for entry in current_registry().entries(kind):
        if entry.name == name and entry.distribution != own:
            raise click.UsageError(
                f"{entry.distribution} already provides {kind} {name!r}; choose another name"
            )


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
