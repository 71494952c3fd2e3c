"""`evsys show`: one past experiment, or one run of it, in full."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal, terminal_width
from evsys_cli.records import lab_of
from evsys_runtime import (
    CountedFromTheEnd,
    central_option,
    central_store,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_option,
)
from evsys_runtime.command_records import run_names

__all__ = ["show"]

UNREADABLE = 1


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", shell_complete=experiment_names)
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "-v", "--verbose", is_flag=True, help="List every evaluation, and the traceback of each failure."
)
@records_option
@central_option
@json_option
def show(
    experiment: str, run: str | None, *, verbose: bool, records: Path | None, central: bool, as_json: bool
) -> int:
    """Show EXPERIMENT (hypothesis, outcome, conclusion, scores by arm, failures, cost, files), or one RUN of it.

    EXPERIMENT is a folder, an ID or unique prefix, a unique name, `last`, or -2 for the second to last;
    EXPERIMENT/RUN also names a run.
    """
    from evsys_record import result_tree
    from evsys_runtime.tools.reading import Showing

    if central:
        from evsys_record.past import Shown

        name, _, named = experiment.partition("/")
        run = run or named or None
        asked = {"experiment": name, "part": run, "whole": not as_json}
        shown = Showing(whole=central_store(records).ask(Shown, "show", asked), run=run)
    else:
        shown = Showing.of(lab_of(records), experiment, run)
    found, run = shown.whole, shown.run
    if as_json:
        print_json(result_tree(shown.short))
    else:
        from evsys_cli.show_lines import run_lines, shown_lines

        lines = (
            shown_lines(found, width=terminal_width(), verbose=verbose)
            if run is None
            else run_lines(found, verbose=verbose)
        )
        echo(for_terminal(lines))
    return UNREADABLE if found.experiment.problem is not None else 0
