"""`evsys wait`: until an experiment ends, or something happens in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.records import experiment_meant
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, json_option, print_json, records_option

if TYPE_CHECKING:
    from evsys_record import Experiment
    from evsys_record.wait_result import Waited

__all__ = ["wait"]

TIMED_OUT = 124
"""The exit code of a timeout, as of `timeout(1)`."""

POLL_SECONDS = 0.5


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
    from evsys_record import Experiment, result_tree

    with experiment_meant(experiment, records) as (index, wanted, _):
        folder = index.experiments / wanted
    found = wait_for(Experiment(folder), event=event, after=after, timeout=timeout)
    if as_json:
        print_json(result_tree(found))
    else:
        echo(_summary(found))
    if found.reason != "event":
        click.get_current_context().exit(found.exit_code)


def wait_for(experiment: Experiment, *, event: str | None, after: int, timeout: float | None) -> Waited:
    """Wait for the end of an experiment, an event, or a timeout, whichever comes first.

    Args:
        experiment: on record.
        event: the name of an event to return at; None waits for the end.
        after: the number of the last event that the caller has seen.
        timeout: seconds; None waits as long as it takes.
    """
    from evsys_record.wait_result import Waited

    deadline = None if timeout is None else time.monotonic() + timeout
    last, events = after, experiment.new_events()
    while True:
        ended, status = (
            experiment.ended,
            experiment.status,
        )  # before the events: later ones are read next time
        for one in events():
            if one.seq <= after:
                continue
            last = one.seq
            if one.event == event:
                return Waited(
                    experiment_id=experiment.id,
                    status=status,
                    reason="event",
                    cursor=last,
                    event=one,
                    exit_code=0,
                )
        if ended:
            code = experiment.facts.get("exit_code")
            code = 1 if code is None or status == "crashed" else int(code)
            return Waited(
                experiment_id=experiment.id, status=status, reason="end", cursor=last, exit_code=code
            )
        if deadline is not None and time.monotonic() >= deadline:
            return Waited(
                experiment_id=experiment.id, status=status, reason="timeout", cursor=last, exit_code=TIMED_OUT
            )
        time.sleep(
            POLL_SECONDS if deadline is None else max(0.0, min(POLL_SECONDS, deadline - time.monotonic()))
        )


def _summary(found: Waited) -> str:
    """One line; the number at its end is what `--after` takes."""
    what = {"end": found.status, "timeout": "still running"}.get(found.reason)
    if found.event is not None:
        run = f" in {found.event.run}" if found.event.run else ""
        what = f"{found.event.event}{run}"
    return f"{found.experiment_id}: {what} (event {found.cursor})"
