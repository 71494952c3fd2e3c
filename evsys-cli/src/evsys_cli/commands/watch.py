"""`evsys watch`: a running experiment, live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.records import experiment_meant
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, records_option

if TYPE_CHECKING:
    from evsys_record import Experiment

__all__ = ["watch"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", default="last", shell_complete=experiment_names)
@records_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def watch(experiment: str, *, records: Path | None, as_json: bool) -> None:
    """Follow EXPERIMENT until it ends: each run's step, loss, scores and time left, and the budget.

    Works from any terminal, even if another process runs the experiment or it has ended. Ctrl-C stops watching; the
    experiment continues. Without a terminal, events are printed as they happen.
    """
    from evsys_record import Experiment

    with experiment_meant(experiment, records) as (index, wanted, _):
        found = Experiment(index.experiments / wanted)
    if as_json:
        _print_events(found, as_json=True)
    elif sys.stderr.isatty():
        _draw(found)
    else:
        _print_events(found, as_json=False)
    if not as_json:
        conclusion = found.conclusion
        verdict = "" if conclusion is None else f": {conclusion.verdict}"
        echo(f"{found.id} {found.status}{verdict}")


def _draw(experiment: Experiment) -> None:
    from evsys_cli.board import Board
    from evsys_runtime.live_lines import LiveLines

    board, lines = Board(), LiveLines()
    try:
        for line in experiment.follow(files=Board.FILES):
            for run_id in board.read(line):
                lines.show(run_id, board.runs[run_id].text)
            if board.budget:
                lines.show("budget", board.budget_text)
    finally:
        lines.end()


def _print_events(experiment: Experiment, *, as_json: bool) -> None:
    from evsys_record.encoding import encode_record
    from evsys_record.events import EVENTS

    for line in experiment.follow(files=[EVENTS]):
        echo(encode_record(line.values) if as_json else _words(line.values))


def _words(event: Mapping[str, Any]) -> str:
    facts = " ".join(f"{name}={value}" for name, value in event["facts"].items())
    return f"{event['at'][11:19]} {event['event']} {event['run'] or ''} {facts}".rstrip()
