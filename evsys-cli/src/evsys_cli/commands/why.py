"""`evsys why`: why an experiment, or an arm of it, ended as it did."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal
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

__all__ = ["explain_outcome"]


@click.command("why", cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@click.argument("arm", required=False, shell_complete=run_names)
@records_option
@central_option
@json_option
def explain_outcome(
    experiment: str, arm: str | None, *, records: Path | None, central: bool, as_json: bool
) -> None:
    """Explain how EXPERIMENT (default: the last one), or one ARM of it, ended.

    Prints the numbers behind the verdict, its weaknesses, failures and where else they occurred, differences from its parent, and how to
    settle it. EXPERIMENT is named as for `evsys show`; EXPERIMENT/ARM also names an arm or a run.
    """
    from evsys_record import result_tree

    if central:
        from evsys_runtime.experiment.insight.results import Why

        name, _, named = experiment.partition("/")
        found = central_store(records).ask(Why, "why", {"experiment": name, "part": arm or named or None})
    else:
        from evsys_runtime.tools.reading import explain

        found = explain(lab_of(records), experiment, arm)
    if as_json:
        print_json(result_tree(found))
    else:
        from evsys_cli.why_lines import why_lines

        echo(for_terminal(why_lines(found)))
