"""`evsys compare`: two experiments on record, or two runs, side by side."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.output import for_terminal, telling, terminal_width
from evsys_cli.records import open_index
from evsys_runtime import (
    CountedFromTheEnd,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_folder,
    records_option,
)

if TYPE_CHECKING:
    from evsys_record.index import Index
    from evsys_runtime.experiment.estimate.compare import Subject

__all__ = ["compare"]

NOT_COMPARABLE = 1


@click.command(cls=CountedFromTheEnd)
@click.argument("one", shell_complete=experiment_names)
@click.argument("other", shell_complete=experiment_names)
@records_option
@json_option
def compare(one: str, other: str, *, records: Path | None, as_json: bool) -> int:
    """Compare ONE with OTHER: differences in their configs, metrics on the tasks they share, and cost.

    Each is an experiment, named as for `evsys show`, or EXPERIMENT/RUN. Arms of two experiments are matched by name, or if each
    experiment has only one. Results on different tasks or from different verifiers aren't compared; if nothing can be compared, the exit code is 1.
    """
    from evsys_cli.project import project_plugins
    from evsys_runtime.experiment.estimate.compare import NOTHING_IN_COMMON
    from evsys_runtime.experiment.estimate.compare import compare as compared

    with ExitStack() as stack:
        opened: dict[Path, Index] = {}
        first, second = (_resolve_subject(text, records, opened, stack) for text in (one, other))
        found = compared(first, second, project_plugins().registry)
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


def _resolve_subject(text: str, records: Path | None, opened: dict[Path, Index], stack: ExitStack) -> Subject:
    """Resolve a name; the index of each folder is opened once."""
    from evsys_record.experiment_names import experiment_called, folder_called
    from evsys_runtime.experiment.estimate.compare import Subject

    place = folder_called(text)
    experiments = records_folder(records) if place is None else place[0].parent
    if experiments not in opened:
        opened[experiments] = stack.enter_context(open_index(experiments))
    index = opened[experiments]
    if place is not None:
        return Subject(index=index, experiment_id=place[0].name, run=place[1])
    name, _, run = text.partition("/")
    return Subject(index=index, experiment_id=experiment_called(name, index), run=run or None)
