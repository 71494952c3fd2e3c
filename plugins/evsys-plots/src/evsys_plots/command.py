"""`evsys plot`: the plots of an experiment, from its record alone."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_runtime import (
    CountedFromTheEnd,
    central_option,
    central_store,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_folder,
    records_option,
)

__all__ = ["plot"]

INCOMPLETE = 1


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", shell_complete=experiment_names)
@records_option
@central_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Output directory.  [default: `plots` in the experiment's folder; with --central `plots` here]",
)
@json_option
def plot(*, experiment: str, records: Path | None, central: bool, out: Path | None, as_json: bool) -> int:
    """Draw the plots of EXPERIMENT: learning curves, arms against the baseline, differences task by task, cost against score.

    EXPERIMENT is a folder, an ID or unique prefix, a unique name, `last`, or -2 for the second to last.
    It may still be running. If a plot can't be drawn, the others still are, and the exit code is 1.
    """
    from tempfile import TemporaryDirectory

    from evsys_plots.draw import draw

    if central:
        with TemporaryDirectory(prefix="evsys-plot-") as folder:
            fetched = central_store(records).fetch(experiment, Path(folder))
            drawn = draw(fetched, (out or Path("plots")).absolute())
    else:
        drawn = draw(_folder_of(experiment, records), None if out is None else out.absolute())
    for problem in drawn.problems:
        echo(f"couldn't be drawn: {problem}", err=True)
    if as_json:
        print_json({"files": [str(path) for path in drawn.files], "problems": list(drawn.problems)})
    elif not drawn.files and not drawn.problems:
        echo("there is nothing to draw")
    else:
        for path in drawn.files:
            echo(str(path))
    return INCOMPLETE if drawn.problems else 0


def _folder_of(experiment: str, records: Path | None) -> Path:
    from evsys_record import find_experiment

    return find_experiment(
        experiment, records_folder(records), tell=lambda line: echo(line, err=True)
    ).directory
