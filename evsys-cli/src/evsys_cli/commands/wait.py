"""`evsys wait`: until an experiment ends, or something happens in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.records import lab_of
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, json_option, print_json, records_option

if TYPE_CHECKING:
    from evsys_record.wait_result import Waited

__all__ = ["wait"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Return after this time.")
@click.option("--for", "event", metavar="EVENT", help="Return at this event, such as evaluation.finished.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Ignore events up to this number."
)
@records_option
@json_option
def wait(
    experiment: str,
    *,
    timeout: float | None,
    event: str | None,
    after: int,
    records: Path | None,
    as_json: bool,
) -> None:
    """Wait until EXPERIMENT ends, and exit with its exit code.

    With --for, return at that event as well. The number of the last event seen is printed: pass it to --after to
    continue from there. Exits with 124 after --timeout, and with 1 if the experiment's process is gone.
    """
    from evsys_record import result_tree
    from evsys_runtime.tools.reading import wait as wait_in

    found = wait_in(lab_of(records), experiment, event=event, after=after, timeout=timeout)
    if as_json:
        print_json(result_tree(found))
    else:
        echo(_summary(found))
    if found.reason != "event":
        click.get_current_context().exit(found.exit_code)


def _summary(found: Waited) -> str:
    """One line; the number at its end is what `--after` takes."""
    what = {"end": found.status, "timeout": "still running"}.get(found.reason)
    if found.event is not None:
        run = f" in {found.event.run}" if found.event.run else ""
        what = f"{found.event.event}{run}"
    return f"{found.experiment_id}: {what} (event {found.cursor})"
