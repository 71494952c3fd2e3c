"""`evsys report`: an experiment as one file to send."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_runtime import (
    CountedFromTheEnd,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_folder,
    records_option,
)

__all__ = ["report"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", shell_complete=experiment_names)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="report.html",
    show_default=True,
    help="File to write.",
)
@click.option(
    "--rollouts",
    default=100,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Rollouts to include of each run, and changed tasks of each comparison. They hold texts of your data.",
)
@records_option
@json_option
def report(experiment: str, *, output: Path, rollouts: int, records: Path | None, as_json: bool) -> None:
    """Write the pages of EXPERIMENT, with their data, as one HTML file.

    The file needs no server and loads nothing from elsewhere: send it, or attach it to a pull request. EXPERIMENT is named as for `evsys show`.
    """
    import asyncio

    from evsys_dashboard.report.answers import answers_of
    from evsys_dashboard.report.page import page
    from evsys_record import find_experiment, write_atomic

    directory = find_experiment(experiment, records_folder(records)).directory
    left_out: list[str] = []
    answers = asyncio.run(answers_of(directory, rollouts=rollouts, tell=left_out.append))
    text = page(answers, title=directory.name)
    write_atomic(output, text)
    if as_json:
        print_json({"file": str(output), "bytes": len(text.encode()), "left_out": left_out}, compact=True)
        return
    for line in left_out:
        echo(f"left out: {line}", err=True)
    echo(f"{output} ({len(text.encode()) / 1e6:.1f} MB)")
