"""`evsys new-experiment`: the next experiment of a project."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

__all__ = ["new_experiment"]


@click.command("new-experiment")
@click.argument("slug")
def new_experiment(slug: str) -> None:
    """Write experiments/<yyyymmdd>_SLUG/ with a config.yaml and a run.py in this project."""
    from evsys_cli.scaffold.write import write_scaffold
    from evsys_runtime.config.project import find_project_root
    from evsys_runtime.record.slugs import slug as portable

    if not slug.strip():
        raise click.UsageError("SLUG is empty; say what the experiment is about")
    root = find_project_root(Path.cwd() / "config.yaml")
    name = portable(slug)
    date = datetime.now(tz=UTC).strftime("%Y%m%d")
    folder = root / "experiments" / f"{date}_{name}"
    written, kept = write_scaffold("experiment", folder, {"name": name, "date": date, "slug": name})
    for path in written:
        click.echo(f"wrote {path}")
    for path in kept:
        click.echo(f"kept {path} (it was there)")
    click.echo(f"\nNext: evsys run {(folder / 'config.yaml').relative_to(root)}")
