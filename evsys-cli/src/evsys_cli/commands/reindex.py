"""`evsys reindex`: the index of past experiments, made again from their files."""

from __future__ import annotations

import time
from pathlib import Path

import click

from evsys_cli.records import open_index
from evsys_runtime import echo, json_option, print_json, records_folder, records_option

__all__ = ["reindex"]


@click.command()
@records_option
@json_option
def reindex(*, records: Path | None, as_json: bool) -> None:
    """Rebuild the index of past experiments from their files.

    This is rarely needed: the index is updated when it is read. Use it after editing files by hand without changing their times
    and sizes.
    """
    from evsys_record import result_tree
    from evsys_record.history import indexed_now

    started = time.monotonic()
    with open_index(records_folder(records), anew=True) as index:
        made = indexed_now(index, seconds=time.monotonic() - started)
    if as_json:
        print_json(result_tree(made))
        return
    dry = f" and {made.dry} dry" if made.dry else ""
    echo(
        f"{made.experiments} experiment{'s' * (made.experiments != 1)}{dry}, {made.runs} run{'s' * (made.runs != 1)} "
        f"in {made.seconds:.1f} s; {made.index or 'not kept'}"
    )
    for each in made.unreadable:
        where = each.experiment_id if each.run_id is None else f"{each.experiment_id}/{each.run_id}"
        echo(f"{where} can't be read: {each.problem}")
