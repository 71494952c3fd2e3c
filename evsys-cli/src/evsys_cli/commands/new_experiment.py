"""`evsys new-experiment`: the next experiment of a project."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from evsys_runtime import echo

__all__ = ["new_experiment"]


@click.command("new-experiment")
@click.argument("slug")
def new_experiment(slug: str) -> None:
    """Create experiments/<yyyymmdd>_SLUG/ in this project, with a config.yaml and a run.py."""
    from evsys_cli.scaffold.write import write_scaffold
    from evsys_record import slug as portable
    from evsys_runtime.config.root import enclosing_project

    if not slug.strip():
        raise click.UsageError("SLUG is empty; name the subject of the experiment")
    root = enclosing_project(Path.cwd())
    if root is None:
        raise click.UsageError(
            f"{Path.cwd()} is not in an evsys project; create one with 'evsys init-project NAME', or in this folder with "
            f"'evsys init-project {shlex.quote(portable(Path.cwd().name))} --here'"
        )
    name = portable(slug)
    date = datetime.now(tz=UTC).strftime("%Y%m%d")
    folder = root / "experiments" / f"{date}_{name}"
    written, kept = write_scaffold("experiment", folder, {"name": name, "date": date, "slug": name})
    for path in written:
        echo(f"wrote {path}")
    for path in kept:
        echo(f"kept {path} (already exists)")
    echo(f"\nNext: evsys run {shlex.quote(os.path.relpath(folder / 'config.yaml'))}")
