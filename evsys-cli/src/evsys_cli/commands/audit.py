"""`evsys audit`: recompute the conclusion of an experiment from its record, and report what differs."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import experiment_meant
from evsys_runtime.command_records import CountedFromTheEnd, experiment_names, records_option
from evsys_runtime.commands import json_option, print_json
from evsys_runtime.terminal import echo

__all__ = ["audit"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@records_option
@json_option
def audit(experiment: str, *, records: Path | None, as_json: bool) -> int:
    """Recompute the conclusion of EXPERIMENT (the last one by default) from its rollouts, and check the hashes of what it rests on.

    Exit code 1 if anything differs. Nothing is written to the record.
    """
    from evsys_runtime.audit.auditing import audit_experiment
    from evsys_runtime.record.result_schemas import result_tree

    with experiment_meant(experiment, records) as (index, wanted, _):
        found = audit_experiment(index.experiments / wanted)
    if as_json:
        print_json(result_tree(found))
    else:
        from evsys_cli.audit_lines import audit_lines

        echo(for_terminal(audit_lines(found)))
    return 0 if found.passed else 1
