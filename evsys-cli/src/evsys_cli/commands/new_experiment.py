"""`evsys new-experiment`: the next experiment of a project."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from evsys_runtime import echo, experiment_names

__all__ = ["new_experiment"]

CONFIG = "config.yaml"


@click.command("new-experiment")
@click.argument("slug")
@click.option(
    "--from",
    "parent",
    metavar="EXPERIMENT",
    shell_complete=experiment_names,
    help="Copy the file of this experiment on record, which becomes the parent.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="With --from, change a value of the copied file.",
)
def new_experiment(slug: str, *, parent: str | None, overrides: tuple[str, ...]) -> None:
    """Create experiments/<yyyymmdd>_SLUG/ in this project, with a config.yaml and a run.py.

    With --from, the config.yaml is that of EXPERIMENT (named as for `evsys show`), with its `--set` options written
    in, its comments kept, and its ID as the parent.
    """
    from evsys_cli.scaffold.write import write_new, write_scaffold
    from evsys_record import slug as portable
    from evsys_runtime.config.root import enclosing_project

    if not slug.strip():
        raise click.UsageError("SLUG is empty; name the subject of the experiment")
    if overrides and parent is None:
        raise click.UsageError("--set changes the file of another experiment; name that with --from")
    root = enclosing_project(Path.cwd())
    if root is None:
        raise click.UsageError(
            f"{Path.cwd()} is not in an evsys project; create one with 'evsys init-project NAME', or in this folder with "
            f"'evsys init-project {shlex.quote(portable(Path.cwd().name))} --here'"
        )
    name = portable(slug)
    date = datetime.now(tz=UTC).strftime("%Y%m%d")
    folder = root / "experiments" / f"{date}_{name}"
    config = folder / CONFIG
    if parent is not None and not config.exists():
        text = _child_text(parent, name, overrides, config, root)
        write_new(config, text)
        echo(f"wrote {config}")
    elif parent is not None:
        raise click.UsageError(f"{config} already exists; choose another name, or edit that file")
    written, kept = write_scaffold("experiment", folder, {"name": name, "date": date, "slug": name})
    for path in written:
        echo(f"wrote {path}")
    for path in kept:
        if parent is None or path != config:
            echo(f"kept {path} (already exists)")
    echo(f"\nNext: evsys run {shlex.quote(os.path.relpath(config))}")


def _child_text(parent: str, name: str, overrides: tuple[str, ...], config: Path, root: Path) -> str:
    """The checked text of the new file; its warnings go to standard error."""
    from evsys_cli.records import experiment_meant
    from evsys_runtime.config.document import parse
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.lineage.child_file import child_file

    with experiment_meant(parent, None) as (index, wanted, _):
        directory = index.experiments / wanted
    text = child_file(directory, name, overrides)
    plan = load_experiment(parse(text, str(config)), project_root=root, records=False)
    for warning in plan.warnings:
        echo(f"warning: {warning}", err=True)
    return text
