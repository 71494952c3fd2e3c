"""`evsys audit`: recompute the conclusion of an experiment from its record, and report what differs."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import experiment_meant
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, json_option, print_json, records_option

__all__ = ["audit"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@click.option(
    "--save",
    is_flag=True,
    help="Save the audit as audit.json in the record; a failed audit marks the experiment.",
)
@records_option
@json_option
def audit(experiment: str, *, save: bool, records: Path | None, as_json: bool) -> int:
    """Recompute the conclusion of EXPERIMENT (default: the last one) from its rollouts, and check the hashes of its inputs.

    Exit code 1 if anything differs. Nothing is written to the record without `--save`.
    """
    from evsys_record import result_tree
    from evsys_record.audits import save_audit
    from evsys_runtime import audit_experiment

    with experiment_meant(experiment, records) as (index, wanted, _):
        folder = index.experiments / wanted
    found = audit_experiment(folder)
    if save:
        save_audit(folder, found)
    if as_json:
        print_json(result_tree(found))
    else:
        from evsys_cli.audit_lines import audit_lines

        echo(for_terminal(audit_lines(found)))
    return 0 if found.passed else 1
