"""`evsys sync`: sends records to a team's server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evsys_runtime import (
    CountedFromTheEnd,
    echo,
    experiment_names,
    json_option,
    print_json,
    records_folder,
    records_option,
)

__all__ = ["sync"]

UNSENT = 1


@click.command(cls=CountedFromTheEnd)
@click.argument("experiments", nargs=-1, shell_complete=experiment_names)
@click.option("--all", "everything", is_flag=True, help="Send every experiment of this project.")
@click.option("--url", envvar="EVSYS_API_URL", help="Address of the server.  [default: EVSYS_API_URL]")
@click.option(
    "--project",
    envvar="EVSYS_API_PROJECT",
    help="Project that the records go into.  [default: EVSYS_API_PROJECT, or the one that the key is for]",
)
@records_option
@json_option
def sync(
    experiments: tuple[str, ...],
    *,
    everything: bool,
    url: str | None,
    project: str | None,
    records: Path | None,
    as_json: bool,
) -> int:
    """Send the records of EXPERIMENTS (default: the last one) to a team's server: those that it lacks.

    Needs a key with the scope `write` in EVSYS_API_KEY. Sending a record again changes nothing, so an interrupted
    call is simply repeated. If a record can't be sent, the others are, and the exit code is 1.
    """
    from evsys.errors import EvsysError
    from evsys_dashboard.push.pusher import Pusher
    from evsys_dashboard.push.server import ServerTarget

    if experiments and everything:
        raise click.UsageError("EXPERIMENTS and --all exclude each other.")
    target = ServerTarget.from_environment(url, project)
    results = []
    for directory in _directories(records_folder(records), experiments, everything=everything):
        pusher, problem, sent = Pusher(directory, target), None, 0
        try:
            while part := pusher.push():
                sent += part
        except EvsysError as exc:
            problem = str(exc)
        left_out = sorted(pusher.files.too_large | pusher.files.linked)
        results.append(
            {"experiment_id": directory.name, "bytes": sent, "left_out": left_out, "problem": problem}
        )
        if not as_json:
            _print(directory.name, sent, left_out, problem)
    target.close()
    if as_json:
        print_json({"url": target.shown, "experiments": results})
    return UNSENT if any(result["problem"] for result in results) else 0


def _directories(experiments: Path, names: Sequence[str], *, everything: bool) -> list[Path]:
    from evsys_record.experiment_names import experiment_called, folder_called
    from evsys_record.index import Index

    if everything:
        return sorted(path.parent for path in experiments.glob("*/experiment.json"))
    found = []
    with Index(experiments, tell=lambda line: echo(line, err=True)) as index:
        index.refresh()
        for name in names or ("last",):
            place = folder_called(name)
            found.append(experiments / experiment_called(name, index) if place is None else place[0])
    return found


def _print(name: str, sent: int, left_out: Sequence[str], problem: str | None) -> None:
    if problem is not None:
        echo(f"{name}: not sent: {problem}", err=True)
    else:
        echo(f"{name}: " + (f"sent {sent} bytes" if sent else "the server has everything"))
    if left_out:
        echo(f"{name}: too large to send, or links out of the record: {', '.join(left_out)}", err=True)
