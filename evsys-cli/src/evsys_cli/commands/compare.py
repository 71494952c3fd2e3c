"""`evsys compare`: two experiments on record, or two arms or runs, side by side."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal, telling, terminal_width
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

__all__ = ["compare"]

NOT_COMPARABLE = 1


@click.command(cls=CountedFromTheEnd)
@click.argument("one", shell_complete=experiment_names)
@click.argument("other", shell_complete=experiment_names)
@records_option
@central_option
@json_option
def compare(one: str, other: str, *, records: Path | None, central: bool, as_json: bool) -> int:
    """Compare ONE with OTHER: differences in their configs, metrics on the tasks they share, and cost.

    Each is an experiment, named as for `evsys show`, or EXPERIMENT/ARM or EXPERIMENT/RUN. Arms of two experiments are matched by name, or if each
    experiment has only one. Results on different tasks or from different verifiers aren't compared; if nothing can be compared, the exit code is 1.
    """
    from evsys_cli.project import project_plugins
    from evsys_runtime.experiment.estimate.compare import NOTHING_IN_COMMON

    if central:
        from evsys_runtime.experiment.estimate.results import Comparing

        found = central_store(records).ask(Comparing, "compare", {"one": one, "other": other})
    else:
        from evsys_runtime.tools.reading import compare as compare_records

        found = compare_records(lab_of(records), one, other, project_plugins().registry)
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(found))
    else:
        from evsys_cli.compare_lines import compare_lines

        with telling():
            for warning in found.warnings:
                echo(f"warning: {warning}", err=True)
        echo(for_terminal(compare_lines(found, width=terminal_width())))
    return NOT_COMPARABLE if NOTHING_IN_COMMON in found.warnings else 0
