"""`evsys why`: why an experiment, or an arm of it, ended as it did."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import experiment_meant
from evsys_runtime.command_records import CountedFromTheEnd, experiment_names, records_option, run_names
from evsys_runtime.commands import json_option, print_json
from evsys_runtime.terminal import echo

__all__ = ["why"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@click.argument("arm", required=False, shell_complete=run_names)
@records_option
@json_option
def why(experiment: str, arm: str | None, *, records: Path | None, as_json: bool) -> None:
    """Tell why EXPERIMENT (the last one, unless it is named) ended as it did, or an ARM of it.

    That is the numbers behind the verdict, what weakens it, what failed and where else that came up, what differs from its parent, and what would
    settle it. EXPERIMENT is called as `evsys show` calls it; EXPERIMENT/ARM names an arm, too, or a run.
    """
    from evsys_record.result_trees import result_tree
    from evsys_runtime.experiment.insight.why import why as explained

    with experiment_meant(experiment, records) as (index, wanted, named):
        found = explained(index, wanted, arm or named)
    if as_json:
        print_json(result_tree(found))
    else:
        from evsys_cli.why_lines import why_lines

        echo(for_terminal(why_lines(found)))
