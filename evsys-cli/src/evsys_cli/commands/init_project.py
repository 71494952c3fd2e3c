"""`evsys init-project`: a project whose first run works."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from evsys_runtime import echo

__all__ = ["init_project"]


@click.command("init-project")
@click.argument("name")
@click.option("--here", is_flag=True, help="Write to the current folder instead of a new one.")
def init_project(name: str, *, here: bool) -> None:
    """Create a project called NAME with data, plugins and a first experiment. Existing files are kept."""
    from evsys_cli.scaffold.example_data import write_example_data
    from evsys_cli.scaffold.write import write_scaffold
    from evsys_record import slug

    if not name.strip() or not name.isprintable():
        raise click.UsageError(f"{name!r} is not a valid folder name")
    target = Path.cwd() if here else Path(name)
    if os.path.lexists(target) and not target.is_dir():
        raise click.UsageError(f"{target} is a file; choose another name")
    package = slug(target.resolve().name)
    date = datetime.now(tz=UTC).strftime("%Y%m%d")
    written, kept = write_scaffold("project", target, {"name": package, "date": date, "slug": "first"})
    more_written, more_kept = write_scaffold(
        "experiment",
        target / "experiments" / f"{date}_first",
        {"name": "first", "date": date, "slug": "first"},
    )
    data_written, data_kept = write_example_data(target)
    for path in (*written, *more_written, *data_written):
        echo(f"wrote {path}")
    for path in (*kept, *more_kept, *data_kept):
        echo(f"kept {path} (already exists)")
    config = Path("experiments") / f"{date}_first" / "config.yaml"
    where = "" if here else f"cd {shlex.quote(name)} && "
    echo(f"\nNext: {where}evsys run {shlex.quote(str(config))}")
