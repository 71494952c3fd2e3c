"""`evsys status`: how far an experiment is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import lab_of
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, json_option, print_json, records_option

if TYPE_CHECKING:
    from evsys_runtime.experiment.command_results import RunState, Status

__all__ = ["status"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@records_option
@json_option
def status(experiment: str, *, records: Path | None, as_json: bool) -> None:
    """Show how far EXPERIMENT (default: the last one) and its runs are, and its budget.

    EXPERIMENT is named as for `evsys show`. Use `evsys watch` to follow it.
    """
    from evsys_record import result_tree
    from evsys_runtime.tools.reading import status as find_status

    found = find_status(lab_of(records), experiment)
    if as_json:
        print_json(result_tree(found))
    else:
        echo(for_terminal(_lines(found)))


def _lines(found: Status) -> Iterator[str]:
    verdict = "" if found.verdict is None else f": {found.verdict}"
    yield f"{found.experiment_id} {found.status}{verdict} (event {found.cursor})"
    for name, amount in found.budget.items():
        yield f"  budget.{name}: {amount.spent:,.4g} of {amount.limit:,.4g}"
    yield from (f"  {_run_line(run)}" for run in found.runs)


def _run_line(run: RunState) -> str:
    parts = [f"{run.run} {run.phase or run.status}"]
    if run.step is not None:
        parts.append(f"step {run.step}" + ("" if run.total_steps is None else f" of {run.total_steps}"))
    parts += [f"{name} {score:.4g}" for name, score in run.scores.items() if score is not None]
    parts += [] if run.seconds_left is None else [f"{run.seconds_left:.0f} s left"]
    return ", ".join(parts)
