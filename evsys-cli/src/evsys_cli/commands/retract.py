"""`evsys retract`: retract the conclusion of an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.records import lab_of
from evsys_runtime import (
    CountedFromTheEnd,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_option,
)

__all__ = ["retract"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", shell_complete=experiment_names)
@click.option("--reason", required=True, help="Reason for the retraction, such as a fault of the grader.")
@click.option(
    "--withdraw", is_flag=True, help="Withdraw an earlier retraction: the conclusion holds after all."
)
@records_option
@json_option
def retract(experiment: str, *, reason: str, withdraw: bool, records: Path | None, as_json: bool) -> None:
    """Mark the conclusion of EXPERIMENT as invalid, with a reason. The record isn't changed: a line is appended to it.

    It is marked in `history`, `show`, `compare`, `context` and `next`, and so is every experiment that cites it: its children, those that
    started from its checkpoints or used its noise floor, and those that cite them.
    """
    from evsys_record import result_tree
    from evsys_runtime.tools.acting import retract as retract_conclusion

    done = retract_conclusion(lab_of(records), experiment, reason=reason, withdraw=withdraw)
    if as_json:
        print_json(result_tree(done))
        return
    what = "holds again" if withdraw else "is retracted"
    echo(f"{done.experiment_id} {what}: {done.reason}")
    for each in done.resting:
        echo(f"  {each} rested on it" if withdraw else f"  {each} rests on it")
