"""`evsys next`: suggest the cheapest next experiments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import lab_of
from evsys_runtime import (
    central_option,
    central_store,
    echo,
    json_option,
    print_json,
    records_option,
)
from evsys_runtime.commands import json_text

if TYPE_CHECKING:
    from evsys_runtime.experiment.insight.results import Next

__all__ = ["next_steps"]

LIMIT = 10


@click.command("next")
@click.option(
    "--limit",
    default=LIMIT,
    show_default=True,
    type=click.IntRange(min=0),
    help="Maximum number of results; 0 for no limit.",
)
@click.option(
    "--config",
    "place",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print the experiment file of the N-th suggestion instead, as JSON (which is valid YAML).",
)
@records_option
@central_option
@json_option
def next_steps(*, limit: int, place: int | None, records: Path | None, central: bool, as_json: bool) -> None:
    """Suggest what to do next: winners to confirm, questions to settle, runs to finish, values to try; sorted by information per cost.

    Costs are estimated from similar past runs. `evsys next --config 1 > FILE` writes the file of the first suggestion, to be reviewed, edited and run.
    """
    from evsys_record import result_tree

    most = None if place is not None else limit or None
    if central:
        from evsys_runtime.experiment.insight.results import Next

        found = central_store(records).ask(Next, "next", {"limit": most or 0})
    else:
        from evsys_runtime.tools.reading import next_steps as find_next_steps

        found = find_next_steps(lab_of(records), limit=most)
    if place is not None:
        _print_file(found, place)
    elif as_json:
        print_json(result_tree(found))
    else:
        from evsys_cli.next_lines import next_lines

        echo(for_terminal(next_lines(found)))


def _print_file(found: Next, place: int) -> None:
    """Print the experiment file of a step."""
    if place > len(found.steps):
        raise click.BadParameter(f"there are only {len(found.steps)} suggestions", param_hint="'--config'")
    step = found.steps[place - 1]
    if step.config is None:
        does = f"; run {step.command}" if step.command else ""
        raise click.BadParameter(f"suggestion {place} has no file{does}", param_hint="'--config'")
    echo(json_text(step.config, sys.stdout))
