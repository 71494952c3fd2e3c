"""`evsys agent`: give a coding agent the plugin, and see what its gates did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from evsys_agents.hosts import HOSTS, Layout, layout_of
from evsys_runtime import echo, json_option, print_json

__all__ = ["agent"]

_hosts = click.option(
    "--for",
    "hosts",
    type=click.Choice(HOSTS),
    multiple=True,
    required=True,
    help="The coding agent; may be repeated. `generic` is any host of Agent Plugins 1.0.0.",
)
_user = click.option(
    "--user", is_flag=True, help="For all projects of this user, instead of the current one."
)


_LATEST = 10
"""Refusals to list."""


@click.group()
def agent() -> None:
    """Give coding agents skills, gates and the record of this project."""


@agent.command()
@_hosts
@_user
@json_option
def install(*, hosts: tuple[str, ...], user: bool, as_json: bool) -> None:
    """Copy the plugin to where a coding agent looks for it.

    An older copy is updated; files that you edited are kept and named.
    """
    from evsys_agents.installation import install as copy
    from evsys_agents.plugin_folder import plugin_version

    done = []
    for host, layout in _layouts(hosts, user=user):
        result = copy(layout, host, plugin_version())
        done.append(
            {"host": host, "folder": str(layout.base), **attrs.asdict(result), "next": layout.next_step}
        )
        if not as_json:
            echo(f"{host}: {result.files} files in {Path(layout.base, layout.receipt).parent}")
            _echo_kept(result.kept, "kept your edit of")
            echo(layout.next_step)
    if shutil.which("evsys-hook") is None:
        echo(
            "warning: evsys-hook isn't on PATH, so the hooks can't run: activate the environment before the host starts",
            err=True,
        )
    if as_json:
        print_json({"installed": done})


@agent.command()
@_hosts
@_user
@json_option
def uninstall(*, hosts: tuple[str, ...], user: bool, as_json: bool) -> None:
    """Delete exactly the copied files. Edited files are kept and named."""
    from evsys_agents.installation import uninstall as remove

    done = []
    for host, layout in _layouts(hosts, user=user):
        result = remove(layout, host)
        removed = result.version is not None
        done.append({"host": host, "folder": str(layout.base), "removed": removed, "kept": result.kept})
        if not as_json:
            echo(
                f"{host}: removed from {layout.base}"
                if removed
                else f"{host}: not installed in {layout.base}"
            )
            _echo_kept(result.kept, "kept")
    if as_json:
        print_json({"uninstalled": done})


@agent.command()
@json_option
def status(*, as_json: bool) -> None:
    """Show where the plugin is installed, and whether it is current."""
    from evsys_agents.installation import find_copy
    from evsys_agents.plugin_folder import plugin_version

    found: list[dict[str, Any]] = []
    for user in (False, True):
        for host, layout in _layouts(HOSTS, user=user):
            result = find_copy(layout, host, plugin_version())
            if result.state != "absent":
                scope = "user" if user else "project"
                found.append(
                    {"host": host, "scope": scope, "folder": str(layout.base), **attrs.asdict(result)}
                )
    if as_json:
        print_json({"version": plugin_version(), "installed": found})
        return
    if not found:
        echo("The plugin isn't installed here: evsys agent install --for HOST")
    for each in found:
        echo(f"{each['host']} ({each['scope']}): {each['state']}, {each['version']}, in {each['folder']}")
        _echo_kept(each["kept"], "edited")
        _echo_kept(each["missing"], "missing")


@agent.command()
@click.option(
    "--records",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another project.",
)
@json_option
def report(*, folder: Path | None, as_json: bool) -> None:
    """Count what the gates refused, and list the latest refusals."""
    from evsys_agents.project import Project
    from evsys_agents.vetoes import counts, vetoes
    from evsys_runtime.command_records import project_folder
    from evsys_runtime.commands import column_lines

    project = Project((folder or project_folder()).absolute())
    counted, refused = counts(project), vetoes(project)
    if as_json:
        gates = [{**each._asdict(), "hit_rate": each.hit_rate} for each in counted]
        print_json({"gates": gates, "vetoes": refused})
        return
    rows = [
        (
            each.gate,
            str(each.calls),
            str(each.vetoes),
            "-" if each.hit_rate is None else f"{each.hit_rate:.1%}",
        )
        for each in counted
    ]
    for line in column_lines(("gate", "calls", "vetoes", "hit rate"), rows):
        echo(line)
    for veto in refused[-_LATEST:]:
        echo(f"{veto['time']} {veto['gate']}: {veto['reason']}")


@agent.command()
@click.argument("decision", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def check(*, decision: Path, as_json: bool) -> None:
    """Check a decision of the agent training-decider.

    DECISION is checked against its schema and the experiment file it names.

    The exit code is 2 if the decision lacks a hypothesis or an expected effect, or if the experiment file has problems.
    """
    from evsys_agents.decision import check_decision
    from evsys_runtime.command_records import project_folder

    found = check_decision(decision, project_folder())
    if as_json:
        print_json({"decision": attrs.asdict(found)})
    else:
        echo(f"{decision}: {found.action}" + (f" {found.experiment}" if found.experiment else ""))


@agent.command()
def schema() -> None:
    """Print the JSON Schema of a decision."""
    from evsys_agents.decision import decision_schema

    print_json(decision_schema())


def _layouts(hosts: tuple[str, ...], *, user: bool) -> Iterator[tuple[str, Layout]]:
    from evsys_agents.plugin_folder import plugin_files
    from evsys_runtime.command_records import project_folder

    files = plugin_files()
    for host in dict.fromkeys(hosts):
        yield host, layout_of(host, files, project=project_folder(), user=user)


def _echo_kept(names: tuple[str, ...], word: str) -> None:
    for name in names:
        echo(f"  {word} {name}")
